import torch

from dcoco_core.training.drafter_loss import head_cross_entropy, soft_targets
from dcoco_core.training.shards import NUM_TOP


def test_equals_autograd_through_the_logits():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn((700, 16), generator=generator)  # more than one chunk
    head = torch.randn((50, 16), generator=generator)
    ids = torch.stack([torch.randperm(50, generator=generator)[:6] for _ in range(700)])
    probs = torch.rand((700, 6), generator=generator)
    weights = torch.rand(700, generator=generator)

    ours = hidden.clone().requires_grad_()
    loss, best = head_cross_entropy(ours, head, ids, probs, weights)
    (loss * 3).backward()

    plain = hidden.clone().requires_grad_()
    logits = plain @ head.T
    per_row = -(probs * logits.log_softmax(-1).gather(-1, ids)).sum(-1)
    expected = (per_row * weights).sum()
    (expected * 3).backward()

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, plain.grad)
    assert torch.equal(best, logits.argmax(-1))


def batch_of_one(top_ids, log_probs, label):
    from dcoco_core.training.drafter_batch import BlockBatch

    empty = torch.empty(0)
    return BlockBatch(
        token_ids=empty,
        taps=empty,
        input_ids=empty,
        positions=empty,
        masks=[],
        label_ids=torch.tensor([[[label]]]),
        top_ids=torch.tensor(top_ids).view(1, 1, 1, -1),
        top_log_probs=torch.tensor(log_probs).view(1, 1, 1, -1),
        weights=torch.ones(1, 1, 1),
    )


def test_targets_mix_distribution_and_label_inside_the_draft_vocabulary():
    log_probs = torch.full((NUM_TOP,), -1e9)
    log_probs[:2] = torch.tensor([0.8, 0.2]).log()
    batch = batch_of_one(list(range(10, 10 + NUM_TOP)), log_probs.tolist(), label=40)
    draft_ids = torch.full((60,), -1)
    draft_ids[[10, 40]] = torch.tensor([0, 1])
    ids, probs = soft_targets(batch, draft_ids, temperature=1.0, label_share=0.25)
    assert ids.shape == probs.shape == (1, NUM_TOP + 1)
    assert ids[0, [0, -1]].tolist() == [0, 1]
    torch.testing.assert_close(probs[0, 0], torch.tensor(0.75 * 0.8))
    torch.testing.assert_close(probs[0, -1], torch.tensor(0.25))
    assert probs[0, 1] == 0  # token 11 cannot be drafted, and its share goes to no other
    sharpened = soft_targets(batch, draft_ids, temperature=0.5, label_share=0.0)[1]
    torch.testing.assert_close(sharpened[0, 0], torch.tensor(0.64 / 0.68))
