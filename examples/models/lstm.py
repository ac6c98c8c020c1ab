"""A language model on nn.LSTM."""

from torch import Tensor, nn


class LSTMLanguageModel(nn.Module):
    def __init__(self, vocabulary: int = 1000, size: int = 128, layers: int = 2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, size, layers, batch_first=True)
        self.head = nn.Linear(size, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token for tokens of shape (batch, length)."""
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(hidden)
