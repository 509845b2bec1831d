package elasticmq

import (
	"strings"
	"testing"
)

// The version in the cache folder's name makes a new version download again.
func TestFolderHasThePinnedVersion(t *testing.T) {
	if !strings.Contains(pom, "<version>"+version+"</version>") {
		t.Errorf("pom.xml does not pin version %s", version)
	}
}
