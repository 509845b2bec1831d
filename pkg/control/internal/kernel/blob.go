package kernel

import (
	"context"
	"fmt"
)

// SealBlob seals data and stores it under the key. The caller then commits a row that
// refers to the key.
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

// OpenBlob reads and opens a blob that SealBlob stored.
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

// DropBlobs deletes blobs that no row refers to. It logs a failure: a blob that stays
// costs storage and does no harm.
func (k *Kernel) DropBlobs(ctx context.Context, keys []string) {
	ctx = context.WithoutCancel(ctx)
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := k.Blobs.Delete(ctx, key); err != nil {
			k.Logger.Warn("cannot delete an unreferenced blob", "key", key, "error", err)
		}
	}
}
