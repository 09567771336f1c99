from .run import Run
from .session import Holdfast
from .summary import Summary
from .views import ActivityView, ExplanationView, StatusView

__all__ = ["ActivityView", "ExplanationView", "Holdfast", "Run", "StatusView", "Summary"]
