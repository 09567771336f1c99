"""One turn of a life: news are folded into memory, a decision is made, a step follows."""
