"""Models as tutorials have them: steps of a millisecond or two, most of it the host's. Each is an
iterator that yields when it is ready, then once per step; a step reads its loss."""

import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, following in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def digits(device: str, _compiled: bool) -> Iterator[None]:
    """A classifier with dropout, its batches moved to the device one by one."""
    model = nn.Sequential(nn.Flatten(), mlp(784, 128), nn.ReLU(), nn.Dropout(0.2), mlp(128, 10))
    model.to(device)
    images, labels = torch.randn(50, 64, 1, 28, 28), torch.randint(10, (50, 64))
    optimizer = torch.optim.Adam(model.parameters())
    yield
    for i in range(2000):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[i % 50].to(device)), labels[i % 50].to(device))
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def adversaries(device: str, _compiled: bool) -> Iterator[None]:
    """A small GAN: two models, two optimizers, random numbers in each step."""
    generator, critic = mlp(16, 64, 2).to(device), mlp(2, 64, 1).to(device)
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in (generator, critic)]
    ones, zeros = torch.ones(64, 1).to(device), torch.zeros(64, 1).to(device)
    loss = F.binary_cross_entropy_with_logits
    yield
    for _ in range(1200):
        made = generator(torch.randn(64, 16, device=device))
        optimizers[1].zero_grad()
        real = critic(torch.randn(64, 2, device=device) + 2)
        of_critic = loss(real, ones) + loss(critic(made.detach()), zeros)
        of_critic.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        of_generator = loss(critic(made), ones)
        of_generator.backward()
        optimizers[0].step()
        of_critic.item(), of_generator.item()
        yield


def q_learning(device: str, _compiled: bool) -> Iterator[None]:
    """An act and a training step in turn, of single transitions that are kept on the device."""
    online, target = mlp(4, 64, 64, 2).to(device), mlp(4, 64, 64, 2).to(device)
    optimizer = torch.optim.AdamW(online.parameters(), 1e-3, amsgrad=True)
    memory: list[tuple[Tensor, ...]] = []
    chosen = random.Random(0)
    yield
    state = torch.randn(1, 4).to(device)
    for _ in range(700):
        with torch.no_grad():
            act = online(state).max(1).indices.view(1, 1)
        act.item()
        following = torch.randn(1, 4).to(device)
        memory.append((state, act, following, torch.tensor([1.0], device=device)))
        state = following
        batch = chosen.sample(memory, min(64, len(memory)))
        states, acts, followings, rewards = (torch.cat(part) for part in zip(*batch, strict=True))
        with torch.no_grad():
            expected = target(followings).max(1).values * 0.99 + rewards
        loss = F.smooth_l1_loss(online(states).gather(1, acts), expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(target.parameters(), online.parameters(), strict=True):
                ours.lerp_(theirs, 0.005)
        yield


def physics(device: str, _compiled: bool) -> Iterator[None]:
    """Solves an equation of second order: gradients of gradients."""
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), mlp(32, 1))
    model.to(device)
    places = torch.linspace(0, 1, 100).view(-1, 1).to(device).requires_grad_()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    yield
    for _ in range(1000):
        value = model(places)
        slope = torch.autograd.grad(value.sum(), places, create_graph=True)[0]
        bend = torch.autograd.grad(slope.sum(), places, create_graph=True)[0]
        loss = (bend + value).square().mean() + (value[0] - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def citations(device: str, _compiled: bool) -> Iterator[None]:
    """Two graph convolutions over 300 nodes and 1,500 edges."""
    first, second = nn.Linear(64, 16).to(device), nn.Linear(16, 7).to(device)
    x, edges = torch.randn(300, 64).to(device), torch.randint(300, (2, 1500)).to(device)
    weights, labels = torch.rand(1500, 1).to(device), torch.randint(7, (300,)).to(device)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, weight_decay=5e-4)

    def convolve(layer: nn.Linear, nodes: Tensor) -> Tensor:
        sent = layer(nodes)
        zeros = torch.zeros(300, sent.shape[1], device=device)
        return zeros.index_add(0, edges[1], sent[edges[0]] * weights)

    yield
    for _ in range(1200):
        optimizer.zero_grad()
        hidden = F.dropout(convolve(first, x).relu())
        loss = F.cross_entropy(convolve(second, hidden), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        yield


WORKLOADS = {
    "digits": digits,
    "adversaries": adversaries,
    "q-learning": q_learning,
    "physics": physics,
    "citations": citations,
}
