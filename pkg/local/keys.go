package local

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// signingKeys keeps the signing keys of later key sets in files of the folder of keys. Safe for concurrent use. It implements
// control.SigningKeys.
type signingKeys struct {
	folder string
	first  []*events.Signer // those of key set 0, which have files of their own
}

// Signer implements control.SigningKeys.
func (k signingKeys) Signer(id string) (*events.Signer, error) {
	for _, s := range k.first {
		if events.KeyID(s.Public()) == id {
			return s, nil
		}
	}
	seed, err := readSecret(k.file(id), ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	s := events.NewSigner(ed25519.NewKeyFromSeed(seed))
	if events.KeyID(s.Public()) != id {
		return nil, fmt.Errorf("the file %s has another key", k.file(id))
	}
	return s, nil
}

// Make implements control.SigningKeys. The file is on the disk before any runner trusts the key.
func (k signingKeys) Make() (*events.Signer, error) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails (crypto/rand)
	s := events.NewSigner(ed25519.NewKeyFromSeed(seed))
	path := k.file(events.KeyID(s.Public()))
	if err := safefile.Create(path, []byte(hex.EncodeToString(seed)+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, folderError(path, err)
	}
	return s, nil
}

func (k signingKeys) file(id string) string { return filepath.Join(k.folder, "signing-"+id+".key") }
