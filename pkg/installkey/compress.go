package installkey

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge reports a compressed value that is larger than its reader allows.
var ErrTooLarge = errors.New("the value is too large after it is decompressed")

// Compress compresses a large value before it is sealed: a sealed value cannot be compressed. The fastest level already
// makes a state or a plan several times smaller.
func Compress(value []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(value)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress a value: %w", err)
	}
	return out.Bytes(), nil
}

// Decompress returns the value that Compress got. It returns ErrTooLarge if the value has more than limit bytes: anyone who
// has the public key can seal a small value that becomes a very large one.
func Decompress(compressed []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("decompress a value: %w", err)
	}
	value, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress a value: %w", err)
	case int64(len(value)) > limit:
		return nil, ErrTooLarge
	}
	return value, nil
}
