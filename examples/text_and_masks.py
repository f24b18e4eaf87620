"""A transformer on tokens: whole numbers cannot be mixed, so mixing happens at the blocks; masks pass through."""

import torch
from torch import Tensor, nn

import nfm


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        h = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        return self.head(h.mean(1))


generator = torch.Generator().manual_seed(0)
batch = {
    "tokens": torch.randint(100, (8, 12), generator=generator),
    "padding": torch.zeros(8, 12, dtype=torch.bool),
}
labels = torch.randint(5, (8,), generator=generator)

model = Classifier()
print("proposed sites:", nfm.find_sites(model))
method = nfm.NoisyFeatureMixup(sites=["embedding", "encoder.layers.*"], noise=nfm.Noise(0.1, relative=True))
print(method.check(model, batch))
outcome = method(model, batch, labels)
outcome.loss.backward()
print(f"loss {outcome.loss.item():.3f} at {outcome.draw.site!r}")
