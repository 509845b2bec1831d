package local_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
)

// The server deletes artifacts that no version uses after a day. It keeps the artifacts
// of old versions, so that a rollback is possible.
func TestUnusedArtifactsAreDeletedAfterADay(t *testing.T) {
	data := t.TempDir()
	s, c, token := started(t, data)
	app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	config, err := app.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	open, err := c.OpenRegistry(t.Context(), "shop", []string{"web"})
	if err != nil {
		t.Fatal(err)
	}
	push := func(source string) string {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		a, err := artifact.Pack(root, artifact.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := artifact.Push(t.Context(), open.Registry+"/"+open.Repositories["web"], artifact.Access{Token: token}, a); err != nil {
			t.Fatal(err)
		}
		return a.Digest()
	}
	first, second, orphan := push("# one"), push("# two"), push("# of no version")
	for _, digest := range []string{first, second} {
		if _, err := c.PublishVersion(t.Context(), "shop", wire.PublishVersionRequest{Config: json.RawMessage(config), Artifacts: map[string]string{"web": digest}}); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, s)
	dayBefore := time.Now().Add(-25 * time.Hour)
	err = filepath.WalkDir(filepath.Join(data, "artifacts"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chtimes(name, dayBefore, dayBefore)
	})
	if err != nil {
		t.Fatal(err)
	}

	count := func() (n int) {
		records, err := filepath.Glob(filepath.Join(data, "artifacts/manifests/*/*/*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return len(records)
	}
	if count() != 3 {
		t.Fatalf("%d manifests are stored, want 3", count())
	}
	s, _, _ = started(t, data)
	for end := time.Now().Add(30 * time.Second); count() == 3 && time.Now().Before(end); { // the server deletes unused artifacts when it starts
		if _, err := http.Get(s.URL() + "/v2/"); err != nil {
			t.Fatal(err)
		}
	}
	defer stop(t, s)
	for digest, want := range map[string]bool{first: true, second: true, orphan: false} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		err = artifact.Pull(t.Context(), strings.TrimPrefix(s.URL(), "http://")+"/"+open.Repositories["web"]+"@"+digest, artifact.Access{Token: token}, root, artifact.Limits{})
		if (err == nil) != want {
			t.Errorf("pull of %s: %v, want success: %v", digest, err, want)
		}
	}
}
