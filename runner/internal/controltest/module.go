package controltest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
)

// Push packs files (name to content) and pushes them to the server's registry.
func (s *Server) Push(files map[string]string) *events.ArtifactRef {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer root.Close()
	a, err := artifact.Pack(root, artifact.Limits{})
	if err != nil {
		s.t.Fatal(err)
	}
	digest, err := artifact.Push(s.t.Context(), s.Registry()+"/components/test", artifact.Access{}, a)
	if err != nil {
		s.t.Fatal(err)
	}
	return &events.ArtifactRef{Repository: "components/test", Digest: digest}
}

// Tools returns the OpenTofu and the Terraform that are to be found: the one
// that FAIRLEAD_TOFU names, and those on PATH. With none it skips the test, and
// says so.
func Tools(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	if path := os.Getenv("FAIRLEAD_TOFU"); path != "" {
		found["FAIRLEAD_TOFU"] = path
	}
	for _, name := range []string{"tofu", "terraform"} {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			path := filepath.Join(dir, name)
			if st, err := os.Stat(path); err == nil && st.Mode()&0o111 != 0 && found[name] == "" && filepath.IsAbs(path) {
				found[name] = path
			}
		}
	}
	if len(found) == 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: neither tofu nor terraform is on PATH, and FAIRLEAD_TOFU is not set")
	}
	return found
}
