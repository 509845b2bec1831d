package blobtest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/blob"
)

// Memory returns an empty store for tests and simulations. The store exists only in this
// process and passes the suite.
func Memory() blob.Store { return &memory{blobs: map[string][]byte{}} }

type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
}

func (m *memory) Put(ctx context.Context, key string, data []byte) error {
	if err := cmp.Or(blob.CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	if len(data) > blob.MaxSize {
		return blob.ErrTooLarge
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[key] = bytes.Clone(data)
	return nil
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	if err := cmp.Or(blob.CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.blobs[key]
	if !ok {
		return nil, blob.ErrNotFound
	}
	return bytes.Clone(data), nil
}

func (m *memory) Delete(ctx context.Context, key string) error {
	if err := cmp.Or(blob.CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, key)
	return nil
}

func (m *memory) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.blobs)) {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
