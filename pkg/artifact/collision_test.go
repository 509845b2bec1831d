package artifact_test

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestCollidingUnicodeNamesAreRefused(t *testing.T) {
	for name, pair := range map[string][2]string{
		"NFC and NFD":                  {"caf\u00e9.tf", "cafe\u0301.tf"},
		"NFC and NFD, a folder":        {"caf\u00e9/a.tf", "cafe\u0301/b.tf"},
		"full case folding":            {"stra\u00dfe.tf", "STRASSE.tf"},
		"composition and case folding": {"\u00c9\u00df.tf", "e\u0301ss.tf"},
		"a final sigma":                {"\u03c3.tf", "\u03c2.tf"},
		"the Kelvin sign":              {"k.tf", "\u212a.tf"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{pair[0]: "1", pair[1]: "2"})
			_, err := artifact.Pack(openRoot(t, dir), artifact.Limits{})
			wantCode(t, err, fairlead.KindInvalid, "source-case-collision")
			archive := makeTar(t, file(pair[0], "1"), file(pair[1], "2"))
			wantCode(t, artifact.Unpack(bytes.NewReader(archive), openRoot(t, t.TempDir()), artifact.Limits{}), fairlead.KindInvalid, "artifact-invalid")
		})
	}
}

func TestDifferentUnicodeNamesArePacked(t *testing.T) {
	content := map[string]string{"caf\u00e9.tf": "1", "cafe.tf": "2", "stra\u00dfe.tf": "3", "strase.tf": "4"}
	a := pack(t, writeTree(t, content))
	dst := t.TempDir()
	if err := artifact.Unpack(bytes.NewReader(tarOf(a)), openRoot(t, dst), artifact.Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, dst); len(got) != len(content) {
		t.Errorf("unpacked %v", got)
	}
}
