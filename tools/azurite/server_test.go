package azurite

import (
	"strings"
	"testing"
)

// The folder in the cache has the version in its name, so that a new one is fetched.
func TestFolderHasThePinnedVersion(t *testing.T) {
	if !strings.Contains(manifest, `"azurite": "`+version+`"`) {
		t.Errorf("package.json does not pin version %s", version)
	}
}
