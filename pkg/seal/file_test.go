package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
)

// createEnv makes the test binary load or create the given file when its standard input
// ends. It then prints the key's id.
const createEnv = "SEAL_TEST_CREATE"

func TestMain(m *testing.M) {
	path := os.Getenv(createEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent closes the input
	r, err := seal.LoadOrCreate(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(r.KeyID())
}

func create(t *testing.T) (path string, r *seal.Keyring) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "seal.key")
	r, err := seal.LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, r
}

func TestKeyFileIsCreatedOnceForItsOwner(t *testing.T) {
	path, first := create(t)
	b := sealed(t, first, "value")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file has mode %v, %v", info.Mode(), err)
	}
	content := read(t, path)
	for _, load := range []func(string) (*seal.Keyring, error){seal.LoadOrCreate, seal.Load} {
		r, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		opens(t, r, b, "value")
	}
	if !bytes.Equal(read(t, path), content) {
		t.Error("Load changed the file")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("files in the folder: %v, %v; want one", entries, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConcurrentProcessesCreateOneKey(t *testing.T) {
	const processes = 5
	for range 3 {
		path := filepath.Join(t.TempDir(), "seal.key")
		var cmds []*exec.Cmd
		var outs [processes]bytes.Buffer
		var starts []func() error
		for i := range processes {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), createEnv+"="+path)
			cmd.Stdout, cmd.Stderr = &outs[i], os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			starts = append(starts, in.Close)
			cmds = append(cmds, cmd)
		}
		for _, start := range starts {
			if err := start(); err != nil {
				t.Error(err)
			}
		}
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v: %s", i, err, outs[i].String())
			}
		}
		r, err := seal.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range outs {
			if got := strings.TrimSpace(outs[i].String()); got != r.KeyID() {
				t.Errorf("process %d has key %q, the file %s", i, got, r.KeyID())
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
			t.Errorf("files in the folder: %v, %v; want one", entries, err)
		}
	}
}

func TestConcurrentGoroutinesCreateOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.key")
	var ids [16]string
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			r, err := seal.LoadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.KeyID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("the calls returned different keys: %q", ids)
		}
	}
}

func TestKeyFileReadableByOthersIsRefused(t *testing.T) {
	path, _ := create(t)
	for _, mode := range []fs.FileMode{0o604, 0o640, 0o644, 0o620, 0o602, 0o601, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := seal.LoadOrCreate(path)
		wantCode(t, err, fairlead.KindUnavailable, "key-file-exposed")
		if e, _ := errors.AsType[*fairlead.Error](err); !strings.Contains(e.Hint, "chmod 600 "+path) {
			t.Errorf("mode %o: the hint is %q", mode, e.Hint)
		}
	}
	for _, mode := range []fs.FileMode{0o600, 0o400} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.LoadOrCreate(path); err != nil {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func wantCode(t *testing.T, err error, kind fairlead.Kind, code fairlead.Code) {
	t.Helper()
	e, ok := errors.AsType[*fairlead.Error](err)
	if !ok || e.Kind != kind || e.Code != code || e.Hint == "" {
		t.Errorf("got %#v, want kind %q, code %q and a hint", err, kind, code)
	}
}

func TestDamagedKeyFileIsRefusedUnchanged(t *testing.T) {
	path, _ := create(t)
	good := string(read(t, path))
	entry := good[strings.Index(good, "[")+1 : strings.LastIndex(good, "]")]
	id := strings.Split(entry, `"`)[3]
	secret := strings.Split(entry, `"`)[7]
	for what, c := range map[string]struct {
		content string
		kind    fairlead.Kind
		code    fairlead.Code
	}{
		"empty":                       {"", fairlead.KindInternal, "key-file-damaged"},
		"zeros, as after a crash":     {strings.Repeat("\x00", len(good)), fairlead.KindInternal, "key-file-damaged"},
		"truncated":                   {good[:len(good)/2], fairlead.KindInternal, "key-file-damaged"},
		"followed by other data":      {good + "{}", fairlead.KindInternal, "key-file-damaged"},
		"file of another type":        {"-----BEGIN PRIVATE KEY-----\n", fairlead.KindInternal, "key-file-damaged"},
		"no version":                  {`{"keys":[` + entry + `]}`, fairlead.KindInternal, "key-file-damaged"},
		"a later version":             {`{"version":2,"keys":"elsewhere"}`, fairlead.KindConflict, "key-file-newer"},
		"an unknown field":            {`{"version":1,"key":[` + entry + `]}`, fairlead.KindInternal, "key-file-damaged"},
		"no keys":                     {`{"version":1,"keys":[]}`, fairlead.KindInternal, "key-file-damaged"},
		"a duplicate key":             {`{"version":1,"keys":[` + entry + `,` + entry + `]}`, fairlead.KindInternal, "key-file-damaged"},
		"a wrong id":                  {strings.Replace(good, id, "0000000000000000", 1), fairlead.KindInternal, "key-file-damaged"},
		"a wrong secret":              {strings.Replace(good, secret, base64.StdEncoding.EncodeToString(make([]byte, seal.KeySize)), 1), fairlead.KindInternal, "key-file-damaged"},
		"a short secret":              {strings.Replace(good, secret, "AAAA", 1), fairlead.KindInternal, "key-file-damaged"},
		"a secret that is not base64": {strings.Replace(good, secret, "?"+secret[1:], 1), fairlead.KindInternal, "key-file-damaged"},
		"too large":                   {good + strings.Repeat(" ", 64<<10), fairlead.KindInternal, "key-file-damaged"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := seal.LoadOrCreate(path)
		wantCode(t, err, c.kind, c.code)
		if err != nil && strings.Contains(err.Error(), secret[1:20]) {
			t.Errorf("%s: the error contains the secret: %v", what, err)
		}
		if string(read(t, path)) != c.content {
			t.Errorf("%s: the file was changed", what)
		}
	}
}

func TestFirstKeySealsAndAllKeysOpen(t *testing.T) {
	older, was := create(t)
	newer, now := create(t)
	old := sealed(t, was, "old")
	entry := func(path string) string {
		s := string(read(t, path))
		return s[strings.Index(s, "[")+1 : strings.LastIndex(s, "]")]
	}
	both := `{"version": 1, "keys": [` + entry(newer) + `,` + entry(older) + `]}`
	if err := os.WriteFile(older, []byte(both), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := seal.LoadOrCreate(older)
	if err != nil {
		t.Fatal(err)
	}
	opens(t, r, old, "old")
	if r.KeyID() != now.KeyID() {
		t.Errorf("key %s seals, want %s", r.KeyID(), now.KeyID())
	}
}

func TestPathWithoutAFileIsRefused(t *testing.T) {
	root := t.TempDir()
	fifo := filepath.Join(root, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link") // its target is missing, and creating the file must not follow it
	if err := os.Symlink(filepath.Join(root, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root, fifo, filepath.Join(root, "no", "folder"), filepath.Join(fifo, "x")} {
		_, err := seal.LoadOrCreate(path)
		wantCode(t, err, fairlead.KindUnavailable, "key-file-unavailable")
	}
	_, err := seal.LoadOrCreate(link)
	wantCode(t, err, fairlead.KindUnavailable, "key-file-missing")
	_, err = seal.Load(filepath.Join(root, "none"))
	wantCode(t, err, fairlead.KindUnavailable, "key-file-missing")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want fs.ErrNotExist", err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("files in the folder: %v, %v; want two", entries, err)
	}
}
