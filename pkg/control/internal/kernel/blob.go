package kernel

import (
	"context"
	"fmt"
)

func (k *Kernel) OpenBlob(ctx context.Context, key, sealContext string) ([]byte, error) {
	sealed, err := k.Blobs.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", key, err)
	}
	data, err := k.Sealer.Open(ctx, sealed, sealContext)
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", key, err)
	}
	return data, nil
}

// DropBlobs removes blobs that no row names any more. A failure leaves
// garbage, not damage.
func (k *Kernel) DropBlobs(ctx context.Context, keys []string) {
	ctx = context.WithoutCancel(ctx)
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := k.Blobs.Delete(ctx, key); err != nil {
			k.Logger.Warn("a blob that nothing names was not removed", "key", key, "error", err)
		}
	}
}
