package fakegcs

import (
	"os"
	"strings"
	"testing"
)

// The version in the cache folder's name makes a new version build again.
func TestFolderHasThePinnedVersion(t *testing.T) {
	pins, err := os.ReadFile("module/go.mod")
	if err != nil || !strings.Contains(string(pins), "github.com/fsouza/fake-gcs-server "+version+" ") {
		t.Errorf("module/go.mod does not pin version %s: %v", version, err)
	}
}
