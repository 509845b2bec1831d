package kernel

import (
	"context"
	"fmt"
)

// SealBlob seals data and stores it under the key, which a commit is to name.
func (k *Kernel) SealBlob(ctx context.Context, key string, data []byte, sealContext string) error {
	sealed, err := k.Sealer.Seal(ctx, data, sealContext)
	if err != nil {
		return fmt.Errorf("seal blob %s: %w", key, err)
	}
	if err := k.Blobs.Put(ctx, key, sealed); err != nil {
		return fmt.Errorf("store blob %s: %w", key, err)
	}
	return nil
}

// OpenBlob is the reverse of SealBlob.
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
