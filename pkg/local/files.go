package local

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/seal"
)

// keys are the secrets of a control plane. They are outside the database, so
// that a copy of the database alone opens nothing.
type keys struct {
	seal    *seal.Keyring      // opens sensitive values
	signing ed25519.PrivateKey // signs job specs; runners pin its public half
	tokens  []byte             // mints tokens of sessions and jobs
}

// loadKeys reads the keys kept in folder, and makes them when fresh is set. A
// control plane that has data does not make new ones: they would open nothing,
// and no runner would trust them.
func loadKeys(folder string, fresh bool) (keys, error) {
	load, secret := seal.Load, readSecret
	if fresh {
		load, secret = seal.LoadOrCreate, readOrMakeSecret
	}
	ring, err := load(filepath.Join(folder, "seal.key"))
	if err != nil {
		return keys{}, err
	}
	seed, err := secret(filepath.Join(folder, "signing.key"), ed25519.SeedSize)
	if err != nil {
		return keys{}, err
	}
	tokens, err := secret(filepath.Join(folder, "tokens.key"), identity.MinKey)
	return keys{seal: ring, signing: ed25519.NewKeyFromSeed(seed), tokens: tokens}, err
}

// readOrMakeSecret returns the secret of the given size kept at path, and
// makes a random one when there is none.
func readOrMakeSecret(path string, size int) ([]byte, error) {
	text, err := readOrMake(path, func() string {
		b := make([]byte, size)
		rand.Read(b) // never fails (crypto/rand)
		return hex.EncodeToString(b)
	})
	if err != nil {
		return nil, err
	}
	return decodeSecret(path, text, size)
}

// readSecret returns the secret of the given size kept at path.
func readSecret(path string, size int) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, folderError(path, err)
	}
	return decodeSecret(path, strings.TrimSpace(string(b)), size)
}

func decodeSecret(path, text string, size int) ([]byte, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != size {
		return nil, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileDamaged,
			Message: "the key file " + path + " is missing or damaged",
			Hint:    "Restore it from a backup. Without it, runners trust nothing that this control plane sends."}
	}
	return b, nil
}

// tokenFile returns the API token kept at path, and makes one when there is none.
func tokenFile(path string) (string, error) {
	return readOrMake(path, func() string { return identity.NewToken(identity.PrefixAPI) })
}

// readOrMake returns the one line kept at path, and writes what make returns
// when there is no file. Of several processes that find none, one wins.
func readOrMake(path string, make func() string) (string, error) {
	for range 2 {
		b, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", folderError(path, err)
		}
		if err := safefile.Create(path, []byte(make()+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", folderError(path, err)
		}
	}
	return "", fmt.Errorf("%s comes and goes", path)
}
