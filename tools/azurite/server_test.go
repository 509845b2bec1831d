package azurite

import (
	"strings"
	"testing"
)

// The version in the cache folder's name makes a new version download again.
func TestFolderHasThePinnedVersion(t *testing.T) {
	if !strings.Contains(manifest, `"azurite": "`+version+`"`) {
		t.Errorf("package.json does not pin version %s", version)
	}
}
