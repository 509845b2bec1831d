package cli

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with a bundle comes from another company. It can have only the files of a layout, and nothing leaves the folder.
func TestPackedLayoutHasNoOtherFiles(t *testing.T) {
	blob := "blobs/sha256/" + strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		headers []tar.Header
		want    string // part of the error; "": it is read
	}{
		"a layout":              {[]tar.Header{{Name: "oci-layout", Typeflag: tar.TypeReg}, {Name: "blobs/", Typeflag: tar.TypeDir}, {Name: blob, Typeflag: tar.TypeReg}}, ""},
		"names with a dot":      {[]tar.Header{{Name: "./oci-layout", Typeflag: tar.TypeReg}}, ""},
		"a file above":          {[]tar.Header{{Name: "../oci-layout", Typeflag: tar.TypeReg}}, "is no file of an image layout"},
		"an absolute path":      {[]tar.Header{{Name: "/oci-layout", Typeflag: tar.TypeReg}}, "is no file of an image layout"},
		"a link":                {[]tar.Header{{Name: blob, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "is no file of an image layout"},
		"a hard link":           {[]tar.Header{{Name: blob, Typeflag: tar.TypeLink, Linkname: "oci-layout"}}, "is no file of an image layout"},
		"another file":          {[]tar.Header{{Name: "run", Typeflag: tar.TypeReg}}, "is no file of an image layout"},
		"a file twice":          {[]tar.Header{{Name: blob, Typeflag: tar.TypeReg}, {Name: blob, Typeflag: tar.TypeReg}}, "exists"},
		"an index without end":  {[]tar.Header{{Name: "index.json", Typeflag: tar.TypeReg, Size: maxLayoutIndex + 1}}, "has more than"},
		"a layer that is short": {[]tar.Header{{Name: blob, Typeflag: tar.TypeReg, Size: 100}}, "unexpected EOF"},
		"nothing":               {nil, "it is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for i := range tc.headers {
				tc.headers[i].Mode = 0o600
				if err := w.WriteHeader(&tc.headers[i]); err != nil {
					t.Fatal(err)
				}
			}
			_ = w.Close() // a header whose content is missing
			file, dir := filepath.Join(t.TempDir(), "bundle.tar"), t.TempDir()
			if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			err := unpackLayout(file, dir)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("unpacked with %v, want %q", err, tc.want)
			}
		})
	}
}
