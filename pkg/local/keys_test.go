package local

import (
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/controltest"
)

func TestSigningKeysConform(t *testing.T) {
	folder := t.TempDir()
	controltest.SigningKeys(t, signingKeys{folder: folder}, func() control.SigningKeys { return signingKeys{folder: folder} })
}

// A folder of a release without spare keys gets one at the next start, and keeps it.
func TestFolderWithoutASpareKeyGetsOne(t *testing.T) {
	folder := t.TempDir()
	first, err := loadKeys(folder, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadKeys(folder, false)
	if err != nil || !again.spare.Equal(first.spare) || again.spare.Equal(again.signing) {
		t.Errorf("the spare key changed, or it is the signing key; %v", err)
	}
	keys := signingKeys{folder, []*events.Signer{events.NewSigner(first.signing), events.NewSigner(first.spare)}}
	for _, want := range keys.first {
		if got, err := keys.Signer(events.KeyID(want.Public())); err != nil || got != want {
			t.Errorf("key set 0 has no file of the key: %v", err)
		}
	}
}
