package terraform

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// bundle is a saved plan. It is one tar file, and a person approves its digest. It contains the tool's plan, and the files
// that the plan wrote to the source folder and that the apply reads, such as the archive of a function's code.
type bundle struct {
	dir     string   // the module's folder if the plan contains its path, so that it is valid only there; else ""
	plan    []byte   // the tool's plan file
	files   []byte   // a tar of the files that the plan added or changed, by path below the workspace's source folder
	removed []string // files that the plan removed
	modules bool     // the files contain modules that the plan fetched, which the apply must not fetch again
}

// maxBundle limits a bundle, in bytes. The control plane has the same limit for saved plans.
const maxBundle = 64 << 20

// The names of the files in a bundle.
const (
	bundleHeaderFile = "about.json"
	bundlePlanFile   = "plan"
	bundleFilesFile  = "files.tar"
)

// bundleHeader is the first file of a bundle.
type bundleHeader struct {
	V       int      `json:"v"` // 1
	Dir     string   `json:"dir,omitempty"`
	Removed []string `json:"gone,omitempty"` // files that the plan removed
	Modules bool     `json:"modules,omitempty"`
}

func (b bundle) encode() ([]byte, error) {
	first, err := json.Marshal(bundleHeader{V: 1, Dir: b.dir, Removed: b.removed, Modules: b.modules})
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		name    string
		content []byte
	}{{bundleHeaderFile, first}, {bundlePlanFile, b.plan}, {bundleFilesFile, b.files}} {
		_, err = 0, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: 0o600})
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return buf.Bytes(), err
}

// errNoBundle reports a saved plan of another version of the runner. Older runners saved only the tool's plan.
var errNoBundle = errors.New("the saved plan is of another version of the runner")

func decodeBundle(saved []byte) (bundle, error) {
	var b bundle
	r := tar.NewReader(bytes.NewReader(saved))
	for _, want := range []string{bundleHeaderFile, bundlePlanFile, bundleFilesFile} {
		h, err := r.Next()
		if err != nil || h.Name != want {
			return bundle{}, errNoBundle
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return bundle{}, errNoBundle
		}
		switch want {
		case bundlePlanFile:
			b.plan = content
		case bundleFilesFile:
			b.files = content
		default:
			var a bundleHeader
			if err := json.Unmarshal(content, &a); err != nil || a.V != 1 {
				return bundle{}, errNoBundle
			}
			b.dir, b.removed, b.modules = a.Dir, a.Removed, a.Modules
		}
	}
	return b, nil
}

// fileVersion identifies the content of a file without reading it: an equal fileVersion means an unchanged file.
type fileVersion struct {
	size     int64
	mode     fs.FileMode
	modified time.Time
	changed  syscall.Timespec
	inode    uint64
}

// snapshotFiles lists the files of the source folder by their path below it. It omits the files that the runner and `init`
// make, because the apply makes these files again. It keeps the child modules that `init` installed.
func (j *job) snapshotFiles() (map[string]fileVersion, error) {
	all := map[string]fileVersion{}
	err := filepath.WalkDir(j.root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(j.root, at)
		if err != nil {
			return err
		}
		if below, ok := strings.CutPrefix(at, j.src+string(filepath.Separator)); ok {
			switch {
			case below == dataDir: // do not skip this folder: it contains the modules folder
				return nil
			case filepath.Dir(below) == dataDir && filepath.Base(below) != modulesDir, below == dependencyLock, below == overrideFile, below == unsavedState():
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
		}
		if d.IsDir() || !d.Type().IsRegular() && d.Type() != fs.ModeSymlink {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s := fileVersion{size: info.Size(), mode: info.Mode(), modified: info.ModTime()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s.changed, s.inode = changeTime(st), st.Ino
		}
		all[filepath.ToSlash(name)] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the module's files: %w", err)
	}
	return all, nil
}

// pack makes a tar of the files that were added or changed since the snapshot before, and lists the removed files. plan is
// the size of the tool's plan. The error is a *plugin.Error if the files and the plan exceed maxBundle.
func (j *job) pack(before map[string]fileVersion, plan int64) (files []byte, removed []string, err error) {
	after, err := j.snapshotFiles()
	if err != nil {
		return nil, nil, err
	}
	var names []string
	total := plan
	for name, s := range after {
		if old, ok := before[name]; !ok || old != s {
			names = append(names, name)
			total += s.size
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			removed = append(removed, name)
		}
	}
	slices.Sort(names)
	slices.Sort(removed)
	if len(names) == 0 {
		return nil, removed, nil
	}
	if total > maxBundle {
		return nil, nil, j.planTooLarge(total, len(names))
	}
	root, err := os.OpenRoot(j.root)
	if err != nil {
		return nil, nil, fmt.Errorf("save the plan's files: %w", err)
	}
	defer root.Close()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range names {
		if err := packFile(w, root, name); err != nil {
			return nil, nil, fmt.Errorf("save the plan's files: %s: %w", name, err)
		}
		if int64(buf.Len())+plan > maxBundle {
			return nil, nil, j.planTooLarge(int64(buf.Len())+plan, len(names))
		}
	}
	if err := w.Close(); err != nil {
		return nil, nil, fmt.Errorf("save the plan's files: %w", err)
	}
	return buf.Bytes(), removed, nil
}

func (j *job) planTooLarge(total int64, files int) error {
	return plugin.Errorf(fairlead.ReasonPlanTooLarge, "the plan and the %d files that it wrote to the module's source folder have %d bytes; at most %d can be saved for the apply. Let the plan write less there, or build its files before the deployment. Modules that the plan fetched count too: put the component in git, so that a build fetches them", files, total, maxBundle)
}

// packFile adds one file or symbolic link below root to the tar.
func packFile(w *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := root.Readlink(name)
		if err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to})
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBundle {
		return errors.New("the file changed while it was read")
	}
	// The tar has the modification time of the file. If the apply archives the file, the archive depends on this time.
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(w, f, info.Size())
	}
	return err
}

// unpack writes the files that the plan added or changed to the source folder, and removes the files that the plan removed.
// It writes nothing outside the folder.
func (j *job) unpack(b bundle) error {
	root, err := os.OpenRoot(j.root)
	if err != nil {
		return fmt.Errorf("restore the plan's files: %w", err)
	}
	defer root.Close()
	for _, name := range b.removed {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restore the plan's files: %w", err)
		}
	}
	r := tar.NewReader(bytes.NewReader(b.files))
	for len(b.files) > 0 {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackFile(root, h, r)
		}
		if err != nil {
			return fmt.Errorf("restore the plan's files: %w", err)
		}
	}
	return nil
}

// unpackFile writes one file of the tar below root, in place of an existing one.
func unpackFile(root *os.Root, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return err
	}
	if err := root.Remove(h.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(fs.FileMode(h.Mode).Perm()), f.Close(), root.Chtimes(h.Name, h.ModTime, h.ModTime))
	}
	return fmt.Errorf("%s has the unsupported type %q", h.Name, h.Typeflag)
}
