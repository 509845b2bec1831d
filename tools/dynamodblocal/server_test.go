package dynamodblocal

import (
	"strings"
	"testing"
)

// The folder in the cache has the version in its name, so that a new one is
// fetched.
func TestFolderHasThePinnedVersion(t *testing.T) {
	if !strings.Contains(pom, "<version>"+version+"</version>") {
		t.Errorf("pom.xml does not pin version %s", version)
	}
}
