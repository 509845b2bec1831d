package moto

import (
	"strings"
	"testing"
)

// The version in the cache folder's name makes a new version download again.
func TestFolderHasThePinnedVersion(t *testing.T) {
	if !strings.Contains(requirements, "moto=="+version+" ") {
		t.Errorf("requirements.txt does not pin version %s", version)
	}
}
