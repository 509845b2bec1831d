package installseed_test

import (
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/internal/installseed"
)

// An agent makes a seed once, a person adds one, and values of the first seed still open.
func TestStory(t *testing.T) {
	data := t.TempDir()
	if seeds, err := installseed.Read(data); err != nil || seeds != "" {
		t.Errorf("a folder without a file has the seed %q, %v", seeds, err)
	}
	for range 2 {
		if err := installseed.Make(data, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	first, err := installseed.Read(data)
	if err != nil || strings.Count(first, "\n") != 1 {
		t.Fatalf("%d lines, %v", strings.Count(first, "\n"), err)
	}
	before, err := installkey.NewRing(first, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := before.Seal("input/password", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := installseed.Add(data, rand.Reader); err != nil {
		t.Fatal(err)
	}
	both, err := installseed.Read(data)
	if err != nil || !strings.HasSuffix(both, "\n"+first) {
		t.Fatalf("the earlier seed is not below the new one: %v", err)
	}
	after, err := installkey.NewRing(both, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := after.OpenOwn("input/password", sealed); err != nil || string(got) != "secret" {
		t.Errorf("the value of the earlier seed opens as %q, %v", got, err)
	}
	if after.Current().Public() == before.Current().Public() {
		t.Error("new values use the earlier seed")
	}
	if info, err := os.Stat(installseed.Path(data)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

func TestMakeNeverReplacesASeed(t *testing.T) {
	data := t.TempDir()
	var all sync.WaitGroup
	seen := make([]string, 8)
	for i := range seen {
		all.Go(func() {
			if err := installseed.Make(data, rand.Reader); err != nil {
				t.Error(err)
			}
			seen[i], _ = installseed.Read(data)
		})
	}
	all.Wait()
	for _, s := range seen {
		if s == "" || s != seen[0] {
			t.Fatal("two processes see two seeds")
		}
	}
}

func TestReadRefusesWhatIsNoSeed(t *testing.T) {
	for name, content := range map[string]string{"a password": "hunter2hunter2", "an empty file": "", "a long file": strings.Repeat("a", 5<<10)} {
		data := t.TempDir()
		if err := os.WriteFile(installseed.Path(data), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if seeds, err := installseed.Read(data); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q, %v", name, seeds, err)
		}
		if err := installseed.Add(data, rand.Reader); err == nil {
			t.Errorf("%s: a seed was put above it", name)
		}
	}
	data := t.TempDir()
	if err := os.Symlink("/etc/hostname", installseed.Path(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := installseed.Read(data); err == nil {
		t.Error("a link is a seed")
	}
}
