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

// keys are the secrets of a control plane. They are not in the database, so a copy of
// the database alone does not reveal sensitive values.
type keys struct {
	folder  string
	seal    *seal.Keyring      // encrypts and decrypts sensitive values
	signing ed25519.PrivateKey // signs job specs; runners pin its public key
	spare   ed25519.PrivateKey // signs changes of the keys that runners trust; they pin its public key, too
	tokens  []byte             // signs the tokens of sessions and jobs
}

// loadKeys reads the keys in folder. If fresh is set, it creates missing keys. A control
// plane that has data must not create new keys: new keys could not decrypt the data, and
// no runner would trust them.
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
	// A folder of an earlier release has no spare key. Its runners pinned the other key alone, which is enough for the first change
	// of keys.
	spare, err := readOrMakeSecret(filepath.Join(folder, "spare.key"), ed25519.SeedSize)
	if err != nil {
		return keys{}, err
	}
	tokens, err := secret(filepath.Join(folder, "tokens.key"), identity.MinKey)
	return keys{folder: folder, seal: ring, signing: ed25519.NewKeyFromSeed(seed), spare: ed25519.NewKeyFromSeed(spare), tokens: tokens}, err
}

// readOrMakeSecret returns the secret of size bytes in the file at path. If there is no
// file, it creates the file with a random secret.
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

// readSecret returns the secret of size bytes in the file at path.
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
			Hint:    "Restore it from a backup. Without it, runners do not trust this control plane."}
	}
	return b, nil
}

// tokenFile returns the API token in the file at path. If there is no file, it creates
// the file with a new token.
func tokenFile(path string) (string, error) {
	return readOrMake(path, func() string { return identity.NewToken(identity.PrefixAPI) })
}

// readOrMake returns the line in the file at path. If there is no file, it creates the
// file with the result of make. If several processes create the file at once, all
// processes return the line of the first process.
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
	return "", fmt.Errorf("another process creates and deletes %s", path)
}
