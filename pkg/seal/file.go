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

	// maxFile bounds what Load reads: room for some 500 keys.
	maxFile = 64 << 10
)

// The key file. A key's id is derived from its secret and stored beside it, so
// one wrong letter in either is found.
type keyFile struct {
	Version int       `json:"version"`
	Keys    []fileKey `json:"keys"` // the first one seals
}

type fileKey struct {
	ID     string `json:"id"`
	Secret string `json:"secret"` // base64
}

// LoadOrCreate returns the keys of the file at path, and makes the file with
// one new key when there is none. Of several processes that do so at once, one
// makes the key and all return it. It never changes a file that exists. See
// Load for the errors; the folder must exist.
func LoadOrCreate(path string) (*Keyring, error) {
	r, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := create(path, GenerateKey()); err != nil {
		return nil, unavailable("make key file "+path, err)
	}
	// Also for the process that made it: what is used is what is stored.
	return Load(path)
}

// Load returns the keys of the file at path: the first one seals, all open.
// The error wraps fs.ErrNotExist when there is no file. Errors are
// *fairlead.Error with code "key-file-missing", "key-file-exposed" when the
// group or others can read or write it, "key-file-damaged", "key-file-newer"
// when a later version wrote it, and "key-file-unavailable" when it cannot be
// read; each says what to do.
func Load(path string) (*Keyring, error) {
	content, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileMissing,
			Message: fmt.Sprintf("there is no key file %s", path),
			Hint:    "Restore it from a backup. Without it, nothing that was sealed with it can be opened.",
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
	// Not blocking: a FIFO of that name would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no file but %s", info.Mode().Type())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileExposed,
			Message: fmt.Sprintf("key file %s has mode %04o: other users can read or write it", path, perm),
			Hint:    fmt.Sprintf("Run `chmod 600 %s`. If others use this machine, treat what the key sealed as known to them.", path),
		}
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// errNewer says that a later version of the program wrote the file.
var errNewer = errors.New("its version is newer than this program")

// parse reads a key file. Its errors never quote the content.
func parse(content []byte) ([]Key, error) {
	if len(content) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, errors.New("it is not the JSON that fairlead writes")
	}
	if version.Version > fileVersion {
		return nil, errNewer
	}
	if version.Version != fileVersion {
		return nil, errors.New("it has no version")
	}
	var file keyFile
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, errors.New("it has other fields than fairlead writes")
	}
	if len(file.Keys) == 0 {
		return nil, errors.New("it has no key")
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
			return nil, fmt.Errorf("key %d is there twice", i+1)
		}
		seen[entry.ID] = true
		keys = append(keys, k)
	}
	return keys, nil
}

// create makes the file, whole and durable, unless there is one by now, which
// is no error.
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
			Hint:    "Start the version of fairlead that wrote it, or a newer one. The file was left as it is.",
		}
	}
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeKeyFileDamaged,
		Message: fmt.Sprintf("key file %s is damaged", path),
		Hint: "Restore it from a backup; it was left as it is. " +
			"Only if nothing was sealed yet, delete it, and a new one is made at the next start.",
		Err: err,
	}
}

// unavailable wraps an error of the file system, and leaves one that says what
// to do as it is.
func unavailable(op string, err error) error {
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		return e
	}
	e := &fairlead.Error{
		Kind: fairlead.KindUnavailable, Code: fairlead.CodeKeyFileUnavailable, Message: op + " failed",
		Hint: "Check that its folder exists, who owns it, and its mode.",
		Err:  err,
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Message, e.Hint = fairlead.CodeDiskFull, op+": the disk is full", "Free some space, then start again."
	case errors.Is(err, syscall.EROFS):
		e.Code, e.Message, e.Hint = fairlead.CodeDataReadOnly, op+": the file system is read-only", "Mount it for writing, then start again."
	}
	return e
}
