package installkey_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/installkey"
)

func TestDecompressReturnsWhatCompressGot(t *testing.T) {
	for _, value := range []string{"", "a", strings.Repeat(`{"type":"terraform_data"}`, 1000)} {
		small, err := installkey.Compress([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := installkey.Decompress(small, int64(len(value))); err != nil || string(got) != value {
			t.Errorf("a value of %d bytes becomes %d bytes, %v", len(value), len(got), err)
		}
	}
}

// A person who has only the public key can seal a small value that becomes a very large one.
func TestDecompressStopsAtItsLimit(t *testing.T) {
	small, err := installkey.Compress(bytes.Repeat([]byte{0}, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := installkey.Decompress(small, 1<<20-1); !errors.Is(err, installkey.ErrTooLarge) {
		t.Errorf("a value above the limit: %v", err)
	}
	for name, damaged := range map[string][]byte{"cut": small[:len(small)/2], "changed": append(bytes.Clone(small[:len(small)-8]), make([]byte, 8)...), "clear": []byte("{}"), "nothing": nil} {
		if got, err := installkey.Decompress(damaged, 1<<21); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
}
