# SPDX-License-Identifier: Apache-2.0
"""PPO with a critic, from the papers, for make_policy.py: trl has no PPO any more.

    Schulman et al. (2017), Proximal policy optimization algorithms                      clipped surrogate
    Schulman et al. (2016), High-dimensional continuous control using GAE                advantages
    Ziegler et al. (2019), Fine-tuning language models from human preferences            KL in the reward, adaptive coefficient
    Stiennon et al. (2020), Learning to summarize from human feedback                    score at the end token, missing end token
    Dhariwal et al. (2017), OpenAI Baselines (ppo2)                                      clipped loss of the values
    Ye et al. (2020), Mastering complex control in MOBA games                            dual clip

Everything is a list of one tensor per completion, f64; no padding anywhere, so none can be counted.
"""
import torch


def shaped(score, ended, penalty, clip):
    """A completion that was cut off loses `penalty`; then |score| is bounded."""
    x = score - (0.0 if ended else penalty)
    return max(-clip, min(clip, x))


def token_rewards(reward, old, ref, beta):
    """-beta k1 on every token, the reward on the last one, which is the end token where there is one."""
    r = -beta * (old - ref)
    r[-1] = r[-1] + reward
    return r


def gae(rewards, values, gamma, lam):
    """Advantages and returns; behind the last token the value is 0."""
    adv, after, value = torch.zeros_like(rewards), 0.0, 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * value - values[t]
        after = delta + gamma * lam * after
        adv[t], value = after, values[t]
    return adv, adv + values


def whiten(lists):
    """Mean 0 and unbiased variance 1 over all tokens of all completions."""
    flat = torch.cat(lists)
    mean, var = flat.mean(), flat.var(unbiased=True)
    return [(x - mean) * torch.rsqrt(var.clamp(min=1e-8)) for x in lists]


def policy_loss(lp, old, adv, low, high, dual):
    """Sum over tokens of max(-A r, -A clip(r)), at most -A dual where A < 0; how many tokens a bound of r decided."""
    ratio = torch.exp(lp - old)
    free, bound = -adv * ratio, -adv * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(free, bound)
    loss = torch.where(adv < 0, torch.minimum(loss, -adv * dual), loss)
    return loss.sum(), (bound > free).sum()


def value_loss(v, old, ret, clip):
    """Sum over tokens of the larger square of the value and of the value held within `clip` of the old one, halved."""
    held = old + (v - old).clamp(-clip, clip)
    free, bound = (v - ret) ** 2, (held - ret) ** 2
    return 0.5 * torch.maximum(free, bound).sum(), (bound > free).sum()


def adapt(beta, kl, target, horizon, n):
    """The coefficient after n completions whose mean KL was kl."""
    return beta * (1 + max(-0.2, min(0.2, kl / target - 1)) * n / horizon)
