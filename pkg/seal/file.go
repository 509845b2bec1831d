package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
)

const (
	fileVersion = 1

	// maxFile limits what Load reads: about 500 keys.
	maxFile = 64 << 10
)

// keyFile is the format of the key file. A key's id is derived from its secret and stored with the secret. So Load
// detects a change of the id or of the secret.
type keyFile struct {
	Version int       `json:"version"`
	Keys    []fileKey `json:"keys"` // the first key seals
}

type fileKey struct {
	ID     string `json:"id"`
	Secret string `json:"secret"` // base64
}

// LoadOrCreate returns the keys of the file at path. If there is no file, it creates one with a new key; the folder
// must exist. If several processes call LoadOrCreate at the same time, one process creates the key, and all processes
// return this key. LoadOrCreate never changes an existing file. For the errors see Load.
func LoadOrCreate(path string) (*Keyring, error) {
	r, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := create(path, GenerateKey()); err != nil {
		return nil, unavailable("make key file "+path, err)
	}
	// Load the file also in the process that created it, so that the key in use is the stored key.
	return Load(path)
}

// Load returns the keys of the file at path: the first key seals, and all keys can open. If there is no file, the error
// wraps fs.ErrNotExist. Errors are *fairlead.Error with a hint, and with one of these codes: "key-file-missing";
// "key-file-exposed" if the group or others can read or write the file; "key-file-damaged"; "key-file-newer" if a later
// version wrote it; "key-file-unavailable" if the file cannot be read.
func Load(path string) (*Keyring, error) {
	content, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileMissing,
			Message: fmt.Sprintf("the key file %s does not exist", path),
			Hint:    "Restore the file from a backup. Without it, no value that it sealed can be opened.",
			Err:     err,
		}
	}
	if err != nil {
		return nil, unavailable("read key file "+path, err)
	}
	keys, err := parse(content)
	if err != nil {
		return nil, refused(path, err)
	}
	return NewKeyring(keys...), nil
}

func readFile(path string) ([]byte, error) {
	// O_NONBLOCK: otherwise the open of a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the path is not a regular file but %s", info.Mode().Type())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileExposed,
			Message: fmt.Sprintf("key file %s has mode %04o: other users can read or write it", path, perm),
			Hint:    fmt.Sprintf("Run `chmod 600 %s`. If other persons use this machine, assume that they know every sealed value.", path),
		}
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// errNewer reports that a later version of the program wrote the file.
var errNewer = errors.New("the version of the file is newer than this program")

// parse reads a key file. Its errors never contain the content.
func parse(content []byte) ([]Key, error) {
	if len(content) > maxFile {
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFile)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, errors.New("the file is not JSON in fairlead's format")
	}
	if version.Version > fileVersion {
		return nil, errNewer
	}
	if version.Version != fileVersion {
		return nil, errors.New("the file has no version")
	}
	var file keyFile
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, errors.New("the file has unknown fields")
	}
	if len(file.Keys) == 0 {
		return nil, errors.New("the file has no key")
	}
	var keys []Key
	seen := map[string]bool{}
	for i, entry := range file.Keys {
		secret, err := base64.StdEncoding.Strict().DecodeString(entry.Secret)
		if err != nil {
			return nil, fmt.Errorf("the secret of key %d is not base64", i+1)
		}
		k, err := NewKey(secret)
		if err != nil {
			return nil, fmt.Errorf("the secret of key %d has %d bytes, not %d", i+1, len(secret), KeySize)
		}
		if k.ID() != entry.ID {
			return nil, fmt.Errorf("the secret of key %d does not belong to its id", i+1)
		}
		if seen[entry.ID] {
			return nil, fmt.Errorf("key %d is in the file twice", i+1)
		}
		seen[entry.ID] = true
		keys = append(keys, k)
	}
	return keys, nil
}

// create creates the file atomically and durably. If another process has created the file meanwhile, create does
// nothing and returns nil.
func create(path string, key Key) error {
	content, err := json.MarshalIndent(keyFile{
		Version: fileVersion,
		Keys:    []fileKey{{ID: key.ID(), Secret: base64.StdEncoding.EncodeToString(key.secret[:])}},
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := safefile.Create(path, append(content, '\n'), 0o600); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func refused(path string, err error) error {
	if errors.Is(err, errNewer) {
		return &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeKeyFileNewer,
			Message: fmt.Sprintf("key file %s was written by a newer version", path),
			Hint:    "Start the version of fairlead that wrote the file, or a newer one. The file was not changed.",
		}
	}
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeKeyFileDamaged,
		Message: fmt.Sprintf("key file %s is damaged", path),
		Hint: "Restore the file from a backup. It was not changed. " +
			"Only if no value was sealed yet, delete the file; the next start creates a new one.",
		Err: err,
	}
}

// unavailable wraps an error of the file system with a hint. It returns a *fairlead.Error
// unchanged.
func unavailable(op string, err error) error {
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		return e
	}
	e := &fairlead.Error{
		Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileUnavailable, Message: op + " failed",
		Hint: "Check that the folder exists, and the owner and mode of the file and the folder.",
		Err:  err,
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Message, e.Hint = fairlead.CodeDiskFull, op+": the disk is full", "Free some disk space, then start again."
	case errors.Is(err, syscall.EROFS):
		e.Code, e.Message, e.Hint = fairlead.CodeDataReadOnly, op+": the file system is read-only", "Mount the file system for writing, then start again."
	}
	return e
}
