package artifact

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Pack reads the folder and returns its artifact. It omits files that belong to one machine
// or contain secrets; see Skipped. It packs a link to a file inside the folder as that
// file. It refuses any other link, and anything that is neither a file nor a folder. It
// omits empty folders, because a fresh clone does not have empty folders.
//
// Errors about the content are of KindInvalid and contain the path, the limit and what the
// user can do. The folder may change while Pack reads it: Pack reads nothing outside the
// folder, and returns an error if the size of a file changes during its read. Pack reads at
// most limits.Entries entries, so it refuses a huge folder early.
func Pack(dir *os.Root, limits Limits) (*Artifact, error) {
	p := packer{limits: limits.WithDefaults(), names: tree.Names{}}
	return p.pack(dir, []part{{root: dir}}, source{kind: ArtifactType})
}

// PackShared packs a folder of an app with other folders that it needs, such as modules
// that several components share. Each file keeps its path relative to app, so that relative
// paths between the folders are still valid after unpacking. The Pull of package fetch
// returns folder. The paths of the folders have slashes and contain no links. A folder
// inside another packed folder is packed once.
// Without shared folders, PackShared returns the same artifact as Pack of folder.
//
// Each folder is packed like in Pack. The limits apply to all folders together.
func PackShared(app *os.Root, folder string, shared []string, limits Limits) (*Artifact, error) {
	if len(shared) == 0 {
		dir, err := app.OpenRoot(folder)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", folder, err)
		}
		defer dir.Close()
		return Pack(dir, limits)
	}
	return packWith(app, append([]string{folder}, shared...), nil, limits, source{SharedType, folder})
}

// PackModules packs a folder of a repository with the folders that it shares, as PackShared, and with the content of modules
// below ModulesFolder: the modules of other places that the component calls.
func PackModules(repository *os.Root, folder string, shared []string, modules *os.Root, limits Limits) (*Artifact, error) {
	return packWith(repository, append([]string{folder}, shared...), []part{{root: modules, prefix: ModulesFolder}}, limits, source{ModulesType, folder})
}

// source is how a reader takes the component from the archive.
type source struct {
	kind   string // artifact type
	folder string // of the component; "": the whole archive
}

// packWith packs folders of an app, and then more parts.
func packWith(app *os.Root, folders []string, more []part, limits Limits, as source) (*Artifact, error) {
	p := packer{limits: limits.WithDefaults(), names: tree.Names{}}
	var parts []part
	for _, name := range outermost(folders) {
		dir, err := app.OpenRoot(name)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		defer dir.Close()
		parts = append(parts, part{root: dir, prefix: name})
	}
	return p.pack(app, append(parts, more...), as)
}

// outermost returns the folders that are inside no other folder, sorted.
func outermost(folders []string) []string {
	var out []string
	for _, f := range slices.Sorted(slices.Values(folders)) {
		inside := slices.ContainsFunc(folders, func(o string) bool { return o != f && (o == "." || strings.HasPrefix(f, o+"/")) })
		if !inside && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (p *packer) pack(dir *os.Root, parts []part, as source) (*Artifact, error) {
	for _, p.part = range parts {
		if err := p.walk("."); err != nil {
			return nil, err
		}
	}
	if len(p.files) == 0 {
		return nil, tree.Invalid(fairlead.CodeSourceEmpty, "Put the component's files there, or correct `source`.",
			"the folder %s has no files to pack", dir.Name())
	}
	// The order of the walk depends on the file system and on the nesting of the folders.
	// So sort the files by their whole paths.
	slices.SortFunc(p.files, func(a, b entry) int { return cmp.Compare(a.path(), b.path()) })
	if err := p.checkSize(dir); err != nil {
		return nil, err
	}

	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range p.files {
		p.part = e.part
		if err := p.addFile(tw, e.name); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir.Name(), err)
	}
	return newArtifact(buf.Bytes(), len(p.files), p.bytes, as)
}

// namedFiles is the maximum number of files in the error for a source that is too large.
const namedFiles = 3

// checkSize refuses a source that exceeds the limit. Its error names the largest files. If
// a file grows after checkSize, addFile refuses it.
func (p *packer) checkSize(dir *os.Root) error {
	type sized struct {
		path string
		size int64
	}
	var all []sized
	var total int64
	for _, e := range p.files {
		info, err := e.root.Stat(e.name)
		if err != nil {
			continue // addFile reports the reason
		}
		all = append(all, sized{e.path(), info.Size()})
		total += info.Size()
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	switch {
	case len(all) > 0 && all[0].size > p.limits.FileBytes:
		return p.fileTooLarge(all[0].path, all[0].size)
	case total <= p.limits.Bytes:
		return nil
	}
	var largest []string
	for _, f := range all[:min(namedFiles, len(all))] {
		if len(largest) > 0 && f.size < total/100 {
			break
		}
		largest = append(largest, fmt.Sprintf("%q of %s", tree.Abbreviate(f.path), humanize.IBytes(uint64(f.size))))
	}
	return tree.Invalid(fairlead.CodeSourceTooLarge, tooLargeHint, "the folder %s has %s of files, the limit is %s; the largest: %s",
		dir.Name(), humanize.IBytes(uint64(total)), tree.FormatBytes(p.limits.Bytes), strings.Join(largest, ", "))
}

func (p *packer) fileTooLarge(name string, size int64) error {
	return tree.Invalid(fairlead.CodeSourceFileTooLarge, tooLargeHint,
		"%q has %d bytes, the limit for one file is %s", name, size, tree.FormatBytes(p.limits.FileBytes))
}

const tooLargeHint = "Remove large files from the source folder. Let the component fetch them by digest from the place where they are built."

// Skipped reports whether Pack omits the file or folder at this path. Pack omits version
// control, caches, the folder that PackModules writes, and files that Terraform writes
// beside the source, because state and plans contain secrets. A tool that runs in the folder writes its state at the top of the
// folder. So a file like "other.tfstate" is skipped at the top, but is packed as a fixture
// below the top. The dependency lock file is packed.
func Skipped(name string) bool {
	dir, base := path.Split(name)
	switch base {
	case ModulesFolder:
		if dir == "" {
			return true // only a build writes it
		}
	case ".terraform", ".git", ".DS_Store", "crash.log", ".terraformrc", "terraform.rc", "errored.tfstate":
		return true
	}
	state := strings.Contains(base, ".tfstate")
	return state && (dir == "" || !strings.HasSuffix(base, ".tfstate") || base == "terraform.tfstate") || strings.HasSuffix(base, ".tfplan") ||
		strings.HasPrefix(base, "crash.") && strings.HasSuffix(base, ".log")
}

// part is a folder that is packed.
type part struct {
	root   *os.Root
	prefix string // prefix of its files' paths; "" and ".": none
}

// entry is a file that is packed.
type entry struct {
	part
	name string // path of the file in root
}

func (e entry) path() string { return path.Join(e.prefix, e.name) }

type packer struct {
	part   // the current part
	limits Limits
	seen   int
	bytes  int64
	files  []entry
	names  tree.Names
}

// readBatch is the number of names that are read from a directory at a time. Pack must
// refuse a directory with millions of names without reading all names into memory.
const readBatch = 512

func (p *packer) walk(dir string) error {
	var below []string
	err := p.list(dir, func(name string, e fs.DirEntry) error {
		if e.IsDir() {
			below = append(below, name)
			return nil
		}
		return p.addEntry(name, e)
	})
	if err != nil {
		return err
	}
	for _, name := range below {
		if err := p.walk(name); err != nil {
			return err
		}
	}
	return nil
}

// list calls visit for each entry of dir that is not skipped.
func (p *packer) list(dir string, visit func(string, fs.DirEntry) error) error {
	d, err := p.root.Open(dir)
	if err != nil {
		return p.readError(dir, err)
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(readBatch)
		for _, e := range entries {
			if p.seen++; p.seen > p.limits.Entries {
				return tree.Invalid(fairlead.CodeSourceTooManyEntries,
					"Pack only the files that the component needs. Generated files do not belong in its source folder.",
					"the folder %s has more than %d files and folders (exceeded at %q)",
					p.root.Name(), p.limits.Entries, tree.Abbreviate(path.Join(dir, e.Name())))
			}
			name := path.Join(dir, e.Name())
			if Skipped(name) {
				continue
			}
			if err := p.limits.CheckPath(tree.SourcePath(), path.Join(p.prefix, name)); err != nil {
				return err
			}
			if err := visit(name, e); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.readError(dir, err)
		}
	}
}

func (p *packer) addEntry(name string, e fs.DirEntry) error {
	mode := e.Type()
	if mode&fs.ModeSymlink != 0 {
		target, _ := p.root.Readlink(name) // for the message only
		info, err := p.root.Stat(name)
		if err != nil {
			return &fairlead.Error{
				Kind: fairlead.KindInvalid, Code: fairlead.CodeSourceLinkOut,
				Message: fmt.Sprintf("%q is a link to %q, which is outside the folder %s or does not exist", name, tree.Abbreviate(target), p.root.Name()),
				Hint:    "Copy the link's target into the folder: an artifact must contain all the files that it needs.",
				Err:     err,
			}
		}
		if info.IsDir() {
			return tree.Invalid(fairlead.CodeSourceLinkDirectory, "Copy the folder, or refer to it by its own path.",
				"%q is a link to the folder %q; only links to files are packed", name, tree.Abbreviate(target))
		}
		mode = info.Mode().Type()
	}
	if !mode.IsRegular() {
		return specialFile(name, mode)
	}
	if earlier, ok := p.names.Add(path.Join(p.prefix, name)); !ok {
		return tree.Invalid(fairlead.CodeSourceCaseCollision, "Rename one of them.",
			"%+q and %+q are the same file on some systems: they differ only in case, or in the composition of a letter", earlier, path.Join(p.prefix, name))
	}
	p.files = append(p.files, entry{p.part, name})
	return nil
}

func specialFile(name string, mode fs.FileMode) error {
	return tree.Invalid(fairlead.CodeSourceSpecialFile, "Remove it from the folder.",
		"%q is neither a file nor a folder (%s)", name, mode.Type())
}

// epoch is the time of every packed file, because a tar header must have a time.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

func (p *packer) addFile(tw *tar.Writer, name string) error {
	// Without O_NONBLOCK, the open would block if a pipe replaced the file after the walk.
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return p.readError(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return p.readError(name, err)
	}
	size := info.Size()
	switch {
	case !info.Mode().IsRegular():
		return specialFile(name, info.Mode())
	case info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
		return tree.Invalid(fairlead.CodeSourceSpecialMode, fmt.Sprintf("Run `chmod u-s,g-s,-t %s`.", name),
			"%q has the set-user-id, set-group-id or sticky bit", name)
	case size > p.limits.FileBytes:
		return p.fileTooLarge(name, size)
	case p.bytes+size > p.limits.Bytes:
		return tree.Invalid(fairlead.CodeSourceTooLarge, tooLargeHint,
			"the folder %s has more than %s of files (exceeded at %q)", p.root.Name(), tree.FormatBytes(p.limits.Bytes), name)
	}
	p.bytes += size

	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(p.prefix, name), Size: size, Mode: mode, ModTime: epoch()}
	if err := tw.WriteHeader(header); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	if _, err := io.CopyN(tw, f, size); errors.Is(err, io.EOF) {
		return changed(name)
	} else if err != nil {
		return p.readError(name, err)
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 {
		return changed(name)
	} else if !errors.Is(err, io.EOF) {
		return p.readError(name, err)
	}
	return nil
}

func changed(name string) error {
	return &fairlead.Error{
		Kind: fairlead.KindConflict, Code: fairlead.CodeSourceChanged,
		Message: fmt.Sprintf("%q changed while it was read", name),
		Hint:    "Run the command again when no program writes to the folder.",
	}
}

func (p *packer) readError(name string, err error) error {
	return &fairlead.Error{
		Kind: fairlead.KindInvalid, Code: fairlead.CodeSourceUnreadable,
		Message: fmt.Sprintf("%q in the folder %s cannot be read", name, p.root.Name()),
		Hint:    "Correct its permissions, or remove it from the folder.",
		Err:     err,
	}
}
