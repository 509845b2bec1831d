package fakegcs

import (
	"os"
	"strings"
	"testing"
)

// The folder in the cache has the version in its name, so that a new one is built.
func TestFolderHasThePinnedVersion(t *testing.T) {
	pins, err := os.ReadFile("module/go.mod")
	if err != nil || !strings.Contains(string(pins), "github.com/fsouza/fake-gcs-server "+version+" ") {
		t.Errorf("module/go.mod does not pin version %s: %v", version, err)
	}
}
