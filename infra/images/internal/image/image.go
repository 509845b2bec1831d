// Package image builds container images from static programs, without a daemon, a base
// image or a shell. The same programs give the same image, byte for byte, so its
// digest identifies its content.
//
// An image consists of layers and a JSON document. Everything in it is built here or
// pinned in go.mod. A Dockerfile would need a builder, which the tests do not have,
// and would put timestamps into layers.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user and the group of the image; not root.
const (
	UID = 65532
	GID = 65532
	// CopyGID is the group that may read a program of Hidden. Only the container that copies the runner's program for
	// a script in an image of its own has this group. It runs no tool.
	CopyGID = 65533
)

// Entry is a file, a folder if its path ends with a slash, or a symbolic link.
type Entry struct {
	Path  string // absolute
	Mode  int64
	Own   bool   // owned by the image's user, otherwise by root
	Group int    // the file's group, unless the image's user owns the file; 0: root
	Data  []byte // of a file
	Local string // of a file: path on this machine of the content, instead of Data
	Link  string // of a symbolic link: what it refers to
}

// Layer is one layer of an image. Content that rarely changes and content that
// changes with each release are in separate layers.
type Layer struct {
	What    string // for the image's history
	Entries []Entry
}

// Spec describes an image.
type Spec struct {
	Arch       string // as Go names it
	Entrypoint []string
	WorkingDir string
	Env        []string
	Labels     map[string]string
	// Volumes are folders on which an empty volume may be mounted. ECS gives the
	// volume the owner and the mode of the folder only if the folder is declared here
	// (Amazon ECS Developer Guide, bind mounts).
	Volumes []string
	Layers  []Layer
}

// Roots returns Mozilla's root certificates in PEM, as the Go project publishes
// them. It omits certificates that have a constraint, because a PEM file cannot
// express the constraint.
func Roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			// A write to a bytes.Buffer never fails.
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate})
		}
	}
	return b.Bytes()
}

// Base returns the layer that every program needs: a user who is not root, the
// certificates, and the folders that the program writes. The user owns these folders.
// A volume that is mounted on such a folder gets the same owner.
func Base(writable ...string) Layer {
	l := Layer{What: "user, certificates and folders", Entries: []Entry{
		{Path: "/etc/", Mode: 0o755},
		{Path: "/etc/group", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:\nrunner:x:%d:\n", GID)},
		{Path: "/etc/passwd", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:0:root:/:/nonexistent\nrunner:x:%d:%d:runner:/:/nonexistent\n", UID, GID)},
		{Path: "/etc/ssl/", Mode: 0o755}, {Path: "/etc/ssl/certs/", Mode: 0o755},
		{Path: "/etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Data: Roots()},
	}}
	made := map[string]bool{"/etc/": true, "/etc/ssl/": true}
	for _, dir := range writable {
		var above []string
		for p := path.Dir(dir); p != "/"; p = path.Dir(p) {
			above = append(above, p+"/")
		}
		slices.Reverse(above)
		for _, p := range above {
			if !made[p] {
				made[p] = true
				l.Entries = append(l.Entries, Entry{Path: p, Mode: 0o755})
			}
		}
		l.Entries = append(l.Entries, Entry{Path: dir + "/", Mode: 0o700, Own: true})
	}
	return l
}

// Program returns the layer of one program.
func Program(what, to, local string) Layer {
	return Layer{What: what, Entries: []Entry{{Path: to, Mode: 0o755, Local: local}}}
}

// Hidden returns the layer of a program that the image's user can start but not read. Linux
// keeps the environment and memory of such a process from other processes of the user
// from its first instruction on. A process of the group CopyGID can read the program.
func Hidden(what, to, local string) Layer {
	return Layer{What: what, Entries: []Entry{{Path: to, Mode: 0o751, Group: CopyGID, Local: local}}}
}

// epoch returns the time of all files in an image. If files had their real times,
// each build would give a different image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// Build returns the image. It reads the local files again when the image is written or
// pushed, so they must not change until then.
func Build(s Spec) (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	var adds []mutate.Addendum
	for _, l := range s.Layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return open(l), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("layer with %s: %w", l.What, err)
		}
		adds = append(adds, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: epoch()}, CreatedBy: l.What}})
	}
	img, err := mutate.Append(img, adds...)
	if err != nil {
		return nil, fmt.Errorf("build the image: %w", err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build the image: %w", err)
	}
	c = c.DeepCopy()
	c.Architecture, c.OS, c.Created = s.Arch, "linux", v1.Time{Time: epoch()}
	volumes := map[string]struct{}{}
	for _, v := range s.Volumes {
		volumes[v] = struct{}{}
	}
	c.Config = v1.Config{Volumes: volumes, User: fmt.Sprintf("%d:%d", UID, GID), Entrypoint: s.Entrypoint, WorkingDir: s.WorkingDir, Env: s.Env, Labels: s.Labels}
	img, err = mutate.ConfigFile(img, c)
	if err != nil {
		return nil, fmt.Errorf("build the image: %w", err)
	}
	return img, nil
}

// open returns a reader of the layer's archive, which it writes during the read.
func open(l Layer) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(l, w)) }()
	return r
}

func write(l Layer, w io.Writer) error {
	t := tar.NewWriter(w)
	for _, e := range l.Entries {
		if err := add(t, e); err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return t.Close()
}

func add(t *tar.Writer, e Entry) error {
	h := &tar.Header{Name: strings.TrimPrefix(e.Path, "/"), Mode: e.Mode, ModTime: epoch(), Typeflag: tar.TypeReg, Size: int64(len(e.Data)), Format: tar.FormatPAX}
	h.Gid = e.Group
	if e.Own {
		h.Uid, h.Gid = UID, GID
	}
	if strings.HasSuffix(e.Path, "/") {
		h.Typeflag = tar.TypeDir
		return t.WriteHeader(h)
	}
	if e.Link != "" {
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Link, 0o777
		return t.WriteHeader(h)
	}
	var content io.Reader = bytes.NewReader(e.Data)
	if e.Local != "" {
		f, err := os.Open(e.Local)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // opened for reading
		st, err := f.Stat()
		if err != nil {
			return err
		}
		h.Size, content = st.Size(), f
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}
