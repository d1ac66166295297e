"""The five backbones layer by layer, as the method describes them: what the shipped modules must equal."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class EEGNet(nn.Module):
    def __init__(self, n_channels: int, n_times: int, dropout: float = 0.25) -> None:
        super().__init__()
        self.temporal = nn.Conv2d(1, 8, (1, 64), bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.spatial = nn.Conv2d(8, 16, (n_channels, 1), groups=8, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, (1, 16), groups=16, bias=False)
        self.pointwise = nn.Conv2d(16, 16, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.temporal(F.pad(x[:, None], (31, 32))))
        x = F.elu(self.bn2(self.spatial(x)))
        x = self.dropout(F.avg_pool2d(x, (1, 4)))
        x = self.pointwise(self.depthwise(F.pad(x, (7, 8))))
        x = self.dropout(F.avg_pool2d(F.elu(self.bn3(x)), (1, 8)))
        return x.flatten(1)


class EncoderBlock(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.norm1 = nn.LayerNorm(40)
        self.query, self.key, self.value = nn.Linear(40, 40), nn.Linear(40, 40), nn.Linear(40, 40)
        self.out = nn.Linear(40, 40)
        self.norm2 = nn.LayerNorm(40)
        self.expand, self.contract = nn.Linear(40, 160), nn.Linear(160, 40)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(n, t, 10, 4).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = self.dropout(torch.softmax(q @ k.transpose(-1, -2) / self.scale, dim=-1))
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(n, t, d)))
        h = self.contract(self.dropout(F.gelu(self.expand(self.norm2(x)))))
        return x + self.dropout(h)


class Conformer(nn.Module):
    def __init__(self, n_channels: int, n_times: int, scale: float = math.sqrt(40)) -> None:
        super().__init__()
        self.temporal = nn.Conv2d(1, 40, (1, 25))
        self.spatial = nn.Conv2d(40, 40, (n_channels, 1))
        self.bn = nn.BatchNorm2d(40)
        self.project = nn.Conv2d(40, 40, 1)
        self.blocks = nn.ModuleList([EncoderBlock(scale) for _ in range(4)])
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(self.bn(self.spatial(self.temporal(x[:, None]))))
        x = self.project(self.dropout(F.avg_pool2d(x, (1, 75), (1, 15))))
        x = x[:, :, 0].transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x.flatten(1)


class LCADNet(nn.Module):
    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x[:, None])), (2, 21))
        return F.relu(self.conv2(x)).flatten(1)


class BranchLayer(nn.Module):
    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(40, 40, kernel, padding=kernel // 2, groups=40, bias=False)
        self.expand = nn.Conv1d(40, 160, 1, groups=4, bias=False)
        self.contract = nn.Conv1d(160, 40, 1, groups=4, bias=False)
        self.bn = nn.BatchNorm1d(40)
        self.dropout = nn.Dropout(0.25)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:  # N x 40 x tokens
        y = self.contract(F.gelu(self.expand(F.gelu(self.depthwise(x)))))
        return x + self.alpha * self.dropout(self.bn(y))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(40, 80), nn.Linear(80, 40)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(F.gelu(self.expand(x))))


class Branch(nn.Module):
    def __init__(self, kernels: tuple[int, int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([BranchLayer(kernel) for kernel in kernels])
        self.shared_weight = nn.Parameter(torch.ones(()))
        self.attention = nn.MultiheadAttention(40, 4, dropout=0.25, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(40), nn.LayerNorm(40)
        self.ffn = FeedForward()
        self.dropout = nn.Dropout(0.25)

    def forward(self, tokens: Tensor) -> Tensor:  # N x tokens x 40
        x = tokens.transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        x = x.transpose(1, 2) + self.shared_weight * tokens
        x = self.norm1(x + self.dropout(self.attention(x, x, x, need_weights=False)[0]))
        return self.norm2(x + self.dropout(self.ffn(x)))


class CrossDirection(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(40), nn.LayerNorm(40)
        self.beta = nn.Parameter(torch.ones(()))


class DSAINet(nn.Module):
    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.temporal = nn.Conv2d(1, 16, (1, 64), bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.spatial = nn.Conv2d(16, 32, (n_channels, 1), groups=16, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.conv = nn.Conv2d(32, 32, (1, 16), bias=False)
        self.bn3 = nn.BatchNorm2d(32)
        self.embed = nn.Linear(32, 40)
        self.positions = nn.Parameter(torch.randn(n_times // 4 // 8, 40))
        self.coarse, self.fine = Branch((11, 15)), Branch((3, 7))
        self.cross_attention = nn.MultiheadAttention(40, 4, dropout=0.25, batch_first=True)
        self.cross_ffn = FeedForward()
        self.to_coarse, self.to_fine = CrossDirection(), CrossDirection()
        self.pool = nn.Linear(40, 1)
        self.dropout = nn.Dropout(0.25)

    def cross(self, x: Tensor, other: Tensor, own: CrossDirection) -> Tensor:
        read = self.cross_attention(x, other, other, need_weights=False)[0]
        y = own.norm1(x + self.dropout(own.beta * read))
        return own.norm2(y + self.dropout(self.cross_ffn(y)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.temporal(F.pad(x[:, None], (31, 32))))
        x = self.dropout(F.avg_pool2d(F.elu(self.bn2(self.spatial(x))), (1, 4)))
        x = self.dropout(F.avg_pool2d(F.elu(self.bn3(self.conv(F.pad(x, (7, 8))))), (1, 8)))
        tokens = self.embed(x[:, :, 0].transpose(1, 2)) * math.sqrt(40)
        tokens = self.dropout(tokens + self.positions)
        coarse, fine = self.coarse(tokens), self.fine(tokens)
        coarse, fine = self.cross(coarse, fine, self.to_coarse), self.cross(fine, coarse, self.to_fine)
        pooled = [(torch.softmax(self.pool(side), dim=1) * side).sum(dim=1) for side in (coarse, fine)]
        return torch.cat(pooled, dim=1)


class MTDNet(nn.Module):
    def __init__(self, n_channels: int, n_times: int, lstm_layout: str = "transpose") -> None:
        super().__init__()
        self.lstm_layout = lstm_layout
        self.convs = nn.ModuleList([nn.Conv1d(n_channels, 32, k, stride=k) for k in (10, 5, 2)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(32) for _ in range(3)])
        self.lstm = nn.LSTM(96, 16, num_layers=2, batch_first=True)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        parts = [F.relu(norm(conv(x))) for conv, norm in zip(self.convs, self.norms, strict=True)]
        parts = [parts[0], F.avg_pool1d(parts[1], 2), F.avg_pool1d(parts[2], 5)]
        x = torch.cat(parts, dim=1)  # N x 96 x steps
        x = x.transpose(1, 2) if self.lstm_layout == "transpose" else x.reshape(len(x), x.shape[2], x.shape[1])
        return self.norm(self.lstm(x)[0][:, -1])


REFERENCES = {"eegnet": EEGNet, "conformer": Conformer, "lcadnet": LCADNet, "dsainet": DSAINet, "mtdnet": MTDNet}
