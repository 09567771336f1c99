"""Which tokens are reviewed, and how often: checks against the API server's keys come first (row X9)."""

from __future__ import annotations

import asyncio
from typing import Any

import jwt
import pytest

from holdfast.activities.kube.client import Forbidden
from holdfast.activities.kube.client import Unreachable as ApiUnreachable
from holdfast.worker.gangs.keys import LEEWAY, READ_AGAIN, Proof, Unproven
from holdfast.worker.gangs.limits import Limited
from holdfast.worker.gangs.proof import KEPT, REFUSED_KEPT, Proofs
from tests.worker.gangs.tokens import ISSUER, Signer, claims

X9 = pytest.mark.row("X9", level="pure")


class Cluster:
    """An API server: accepts what it has signed, unless the pod is gone."""

    def __init__(self) -> None:
        self.signer = Signer()
        self.issuer = ISSUER
        self.reviews = 0
        self.reads = 0
        self.dark = False
        self.hidden = False
        self.gone = set[str]()
        self.notes = list[str]()
        self.now = 0.0

    async def review_token(self, token: str, audience: str) -> Any:
        self.reviews += 1
        await asyncio.sleep(0)
        if self.dark:
            raise ApiUnreachable(0, "", "no answer")
        try:
            said = jwt.decode(token, self.signer.key.public_key(), algorithms=["ES256"], audience=audience)
        except jwt.PyJWTError as error:
            return {"authenticated": False, "error": str(error)}
        pod = said["kubernetes.io"]["pod"]
        if pod["name"] in self.gone:
            return {"authenticated": False, "error": "the pod is gone"}
        extra = {"pod-name": [pod["name"]], "pod-uid": [pod["uid"]]}
        return {
            "authenticated": True,
            "audiences": [audience],
            "user": {
                "username": said["sub"],
                "extra": {f"authentication.kubernetes.io/{key}": value for key, value in extra.items()},
            },
        }

    async def published_keys(self) -> tuple[str, list[dict[str, Any]]]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.dark:
            raise ApiUnreachable(0, "", "no answer")
        if self.hidden:
            raise Forbidden(403, "Forbidden", "may not read them")
        return self.issuer, [{"kty": "oct", "k": "c2VjcmV0", "kid": "hs", "alg": "HS256"}, self.signer.published]

    def proofs(self) -> Proofs:
        return Proofs(self, lambda: self.now, self.notes.append)


async def prove(proofs: Proofs, token: str, source: str = "10.0.0.1") -> Proof:
    return await proofs.of(await proofs.check(token, source))


async def refused(proofs: Proofs, token: str, source: str = "10.0.0.1") -> Exception:
    with pytest.raises((Unproven, Limited)) as error:
        await prove(proofs, token, source)
    return error.value


async def proven_at_once(proofs: Proofs, cluster: Cluster, many: int, source: str = "10.0.0.1") -> int:
    """Return how many of so many new pods are answered that ask at once."""
    tokens = [cluster.signer.token(f"new-{index}") for index in range(many)]
    answers = await asyncio.gather(*[prove(proofs, one, source) for one in tokens], return_exceptions=True)
    return sum(isinstance(one, Proof) for one in answers)


@X9
async def test_X9_a_token_is_reviewed_once_a_minute_however_often_and_by_however_many_it_is_shown():
    cluster = Cluster()
    proofs, token = cluster.proofs(), cluster.signer.token("a")
    assert set(await asyncio.gather(*[prove(proofs, token) for _ in range(10)])) == {Proof("team-a", "a", "pod-a")}
    assert (cluster.reviews, cluster.reads) == (1, 1)
    cluster.now = KEPT - 1
    await prove(proofs, token)
    assert cluster.reviews == 1
    cluster.now = KEPT
    cluster.dark = True
    with pytest.raises(ApiUnreachable):
        await prove(proofs, token)
    cluster.dark = False
    await prove(proofs, token)
    assert cluster.reviews == 3
    cluster.gone.add("a")
    cluster.now = 2 * KEPT
    assert "the pod is gone" in str(await refused(proofs, token))


def junk(cluster: Cluster) -> dict[str, str]:
    """Tokens that cost no review, each by what is wrong with it."""
    ours, now = cluster.signer, claims("a", "pod-a", "team-a")["iat"]
    header = {"kid": "k1"}
    unsigned = jwt.encode(claims("a", "pod-a", "team-a"), "", algorithm="none", headers=header)
    symmetric = jwt.encode(claims("a", "pod-a", "team-a"), "secret" * 8, algorithm="HS256", headers={"kid": "hs"})
    confused = jwt.encode(claims("a", "pod-a", "team-a"), "secret" * 8, algorithm="HS256", headers=header)
    return {
        "words": "nonsense",
        "empty": "",
        "parts": "a.b.c",
        "foreign key": Signer().token("a"),
        "unknown key": Signer("k2").token("a"),
        "unsigned": unsigned,
        "symmetric": symmetric,
        "confused": confused,
        "expired": ours.token("a", exp=int(now - LEEWAY - 1)),
        "not yet": ours.token("a", nbf=int(now + LEEWAY + 60)),
        "audience": ours.token("a", aud=[ISSUER]),
        "issuer": ours.token("a", iss="https://elsewhere.example.com"),
        "no end": ours.token("a", exp=None),
        "account": ours.token("a", sub="system:serviceaccount:team-b:default"),
        "no account": ours.token("a", sub="system:node:n1"),
        "no pod": ours.token("a", bound={"namespace": "team-a"}),
        "list": ours.token("a", bound=["team-a"]),
        "pod list": ours.token("a", bound={"namespace": "team-a", "pod": ["a"]}),
        "cut": ours.token("a")[:-4],
    }


@pytest.mark.parametrize("what", list(junk(Cluster())))
@X9
async def test_X9_a_token_that_proves_nothing_costs_no_review(what: str):
    cluster = Cluster()
    proofs = cluster.proofs()
    await prove(proofs, cluster.signer.token("b"))
    assert isinstance(await refused(proofs, junk(cluster)[what]), Unproven)
    assert cluster.reviews == 1


@X9
async def test_X9_a_source_of_junk_is_told_to_wait_and_a_pod_behind_the_same_address_is_answered():
    cluster = Cluster()
    proofs, foreign = cluster.proofs(), Signer().token("a")
    answers = [await refused(proofs, foreign) for _ in range(1000)]
    assert [type(one) for one in answers[:20]] == [Unproven] * 20
    assert {type(one) for one in answers[20:]} == {Limited}
    assert isinstance(await refused(proofs, foreign, "10.0.0.2"), Unproven)
    assert (await prove(proofs, cluster.signer.token("a"))).pod == "a"
    assert cluster.reviews == 1


@X9
async def test_X9_a_clock_that_is_a_minute_off_refuses_nobody():
    cluster = Cluster()
    now = claims("a", "pod-a", "team-a")["iat"]
    early = cluster.signer.token("a", nbf=int(now + LEEWAY - 10), iat=int(now + LEEWAY - 10))
    checked = await cluster.proofs().check(early, "10.0.0.1")
    assert checked.claim.signed
    assert checked.claim.proof.pod == "a"


@X9
async def test_X9_junk_makes_the_keys_read_again_at_most_once_in_ten_seconds_and_a_new_key_is_found():
    cluster = Cluster()
    proofs = cluster.proofs()
    for index in range(100):
        await refused(proofs, Signer(f"x{index}").token("a"), f"10.0.0.{index}")
    assert cluster.reads == 1
    cluster.signer = Signer("k2")
    cluster.now = READ_AGAIN
    assert (await prove(proofs, cluster.signer.token("a"))).pod == "a"
    assert cluster.reads == 2


@X9
async def test_X9_a_cluster_that_changes_its_issuer_is_followed_and_tokens_of_the_former_go_on():
    cluster = Cluster()
    proofs = cluster.proofs()
    await prove(proofs, cluster.signer.token("a"))
    cluster.issuer = "https://new.example.com"
    cluster.now = READ_AGAIN
    assert (await prove(proofs, cluster.signer.token("b", iss=cluster.issuer))).pod == "b"
    assert (await prove(proofs, cluster.signer.token("c"))).pod == "c"


@X9
async def test_X9_a_pods_many_tokens_have_few_reviews_and_leave_those_of_others():
    cluster = Cluster()
    proofs = cluster.proofs()
    many = [cluster.signer.token("a", jti=str(index)) for index in range(100)]
    answers = await asyncio.gather(*[prove(proofs, one) for one in many], return_exceptions=True)
    assert cluster.reviews == 5
    assert sum(isinstance(one, Limited) for one in answers) == 95
    assert (await prove(proofs, cluster.signer.token("b"))).pod == "b"


@X9
async def test_X9_a_revoked_token_is_refused_and_reviewed_again_only_after_a_while():
    cluster = Cluster()
    proofs, token = cluster.proofs(), cluster.signer.token("a")
    cluster.gone.add("a")
    assert "the pod is gone" in str(await refused(proofs, token))
    await refused(proofs, token)
    assert cluster.reviews == 1
    cluster.now = REFUSED_KEPT
    await refused(proofs, token)
    assert cluster.reviews == 2


@X9
async def test_X9_without_keys_a_source_has_few_reviews_of_junk_and_pods_are_still_answered():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    known = cluster.signer.token("known")
    assert (await prove(proofs, known)).pod == "known"
    for index in range(1000):
        await refused(proofs, Signer().token("a", jti=str(index)))
    assert cluster.reviews == 21
    # What a review would refuse for certain is refused without one.
    await refused(proofs, cluster.signer.token("a", aud=[ISSUER]), "10.0.0.3")
    await refused(proofs, cluster.signer.token("a", exp=1), "10.0.0.3")
    assert cluster.reviews == 21
    cluster.now = KEPT
    assert (await prove(proofs, known)).pod == "known", "who was accepted before is not limited"
    for index in range(30):
        pod = f"pod-{index}"
        assert (await prove(proofs, cluster.signer.token(pod), "10.0.0.2")).pod == pod, "who is accepted is not charged"
    assert len(cluster.notes) == 1
    assert "may not read them" in cluster.notes[0]
    cluster.hidden = False
    cluster.now += READ_AGAIN
    await prove(proofs, cluster.signer.token("c"), "10.0.0.4")
    assert cluster.notes[1:] == [""]


@X9
async def test_X9_without_keys_all_sources_together_have_a_rate():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    for index in range(1000):
        await refused(proofs, Signer().token("a", jti=str(index)), f"10.0.{index // 250}.{index % 250}")
    assert cluster.reviews == 40


@X9
async def test_X9_without_keys_a_source_is_not_charged_for_what_the_rate_of_all_refuses():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    for index in range(40):
        await refused(proofs, Signer().token("a", jti=str(index)), f"10.0.1.{index}")
    for index in range(30):
        assert isinstance(await refused(proofs, cluster.signer.token(f"early-{index}")), Limited)
    cluster.now = 1
    assert await proven_at_once(proofs, cluster, 10) == 10


@X9
async def test_X9_without_keys_the_rate_of_all_is_not_charged_for_what_the_limit_of_a_source_refuses():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    for index in range(100):
        await refused(proofs, Signer().token("a", jti=str(index)))
    assert await proven_at_once(proofs, cluster, 20, "10.0.0.2") == 20


@X9
async def test_X9_without_keys_a_source_is_not_charged_for_a_review_that_has_no_answer():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    await prove(proofs, cluster.signer.token("a"))
    cluster.dark = True
    for index in range(25):
        with pytest.raises(ApiUnreachable):
            await prove(proofs, cluster.signer.token(f"early-{index}"))
    cluster.dark = False
    assert await proven_at_once(proofs, cluster, 10) == 10


@X9
async def test_X9_without_keys_a_review_that_many_wait_for_gives_back_one_charge():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    for index in range(10):
        assert isinstance(await refused(proofs, Signer().token("a", jti=str(index))), Unproven)
    token = cluster.signer.token("a")
    assert len(await asyncio.gather(*[prove(proofs, token) for _ in range(10)])) == 10
    answers = [await refused(proofs, Signer().token("b", jti=str(index))) for index in range(20)]
    assert [type(one) for one in answers] == [Unproven] * 10 + [Limited] * 10


@X9
async def test_X9_without_keys_the_charge_is_given_back_though_whoever_asked_has_left():
    cluster = Cluster()
    cluster.hidden = True
    proofs = cluster.proofs()
    await prove(proofs, cluster.signer.token("a"))
    for index in range(20):
        token = cluster.signer.token(f"left-{index}")
        asking = asyncio.ensure_future(proofs.of(await proofs.check(token, "10.0.0.1")))
        await asyncio.sleep(0)  # It is charged, and waits for the review.
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await prove(proofs, token, "10.0.0.2")
        assert cluster.reviews == index + 2, "the review that it began is the one that counts"
    assert await proven_at_once(proofs, cluster, 10) == 10


@X9
async def test_X9_keys_that_are_known_stay_while_the_api_server_does_not_answer():
    cluster = Cluster()
    proofs = cluster.proofs()
    await prove(proofs, cluster.signer.token("a"))
    cluster.dark = True
    cluster.now = READ_AGAIN
    assert isinstance(await refused(proofs, Signer("k2").token("a")), Unproven)
    assert (await proofs.check(cluster.signer.token("b"), "10.0.0.1")).claim.signed
    assert cluster.notes == [""]


@X9
async def test_X9_what_is_kept_is_bounded_and_refusals_displace_no_acceptance(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("holdfast.worker.gangs.proof.KEPT_MAXIMUM", 10)
    cluster = Cluster()
    proofs = cluster.proofs()
    known = cluster.signer.token("known")
    await prove(proofs, known)
    revoked = [cluster.signer.token(f"gone-{index}") for index in range(50)]
    cluster.gone.update(f"gone-{index}" for index in range(50))
    for token in revoked:
        await refused(proofs, token)
    before = cluster.reviews
    await prove(proofs, known)
    assert cluster.reviews == before
    await refused(proofs, revoked[-1])
    assert cluster.reviews == before, "the newest refusal is kept"
    await refused(proofs, revoked[0])
    assert cluster.reviews == before + 1, "an old one is forgotten"
