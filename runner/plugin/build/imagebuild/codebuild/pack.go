package codebuild

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
)

// The limits of a context and of a layout. S3 stores at most 5 GB with one request.
const (
	maxContext = 2 << 30
	maxLayout  = 5 << 30
	maxEntries = 20_000 // files of a layout
)

// The content of the archive. The project's buildspec reads it.
const (
	contextFolder = "context"
	argumentsFile = "arguments"
	basesFolder   = "bases" // an image layout; absent if the build has no base images
)

// arguments returns the arguments of docker buildx build that depend on the request.
func arguments(r imagebuild.Request) []string {
	list := []string{"--file", path.Join(contextFolder, r.Dockerfile)}
	if r.Target != "" {
		list = append(list, "--target", r.Target)
	}
	if len(r.Platforms) > 0 {
		list = append(list, "--platform", strings.Join(r.Platforms, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Bases.Digests)) {
		list = append(list, "--build-context", name+"=oci-layout://"+basesFolder+"@"+r.Bases.Digests[name])
	}
	if r.Generator != "" {
		list = append(list, "--attest", "type=sbom,generator="+r.Generator)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		list = append(list, "--build-arg", name+"="+r.Args[name]) // without "=", docker would take the value from its environment
	}
	return append(list, contextFolder)
}

// pack writes the archive of a build: the context, the base images, and the arguments, each followed by a zero byte.
func pack(ctx context.Context, to io.Writer, r imagebuild.Request) error {
	parts := []part{{gzip.DefaultCompression, func(out *tar.Writer) error {
		list := []byte(strings.Join(arguments(r), "\x00") + "\x00")
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: argumentsFile, Mode: 0o644, Size: int64(len(list)), Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := out.Write(list); err != nil {
			return err
		}
		return folder{name: contextFolder, noun: "the build context", most: maxContext, advice: "remove files that the Dockerfile does not copy"}.pack(ctx, out, r.Context)
	}}}
	if len(r.Bases.Digests) > 0 {
		parts = append(parts, part{gzip.NoCompression, func(out *tar.Writer) error { // layers are compressed already
			return folder{name: basesFolder, noun: "the layout of the base images", most: imagebuild.MaxBases, advice: "use smaller base images"}.pack(ctx, out, r.Bases.Layout)
		}})
	}
	for i, p := range parts {
		err := p.write(to, i == len(parts)-1)
		if _, ok := errors.AsType[*plugin.Error](err); err != nil && !ok {
			return fmt.Errorf("pack the build context: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// part is a part of the archive with a compression of its own. A reader of gzip reads one part after the other.
type part struct {
	level int
	pack  func(*tar.Writer) error
}

func (p part) write(to io.Writer, last bool) error {
	compress, err := gzip.NewWriterLevel(to, p.level)
	if err != nil {
		return err
	}
	out := tar.NewWriter(compress)
	if err := p.pack(out); err != nil {
		return err
	}
	end := out.Flush
	if last {
		end = out.Close
	}
	return errors.Join(end(), compress.Close())
}

// folder is a folder of the archive.
type folder struct {
	name         string // in the archive
	noun, advice string // of messages
	most         int64  // bytes
}

// pack packs folders, files and symbolic links of dir. It follows no link.
func (f folder) pack(ctx context.Context, out *tar.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	size := int64(0)
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			if link, err = root.Readlink(filepath.FromSlash(name)); err != nil {
				return err
			}
		case 0, fs.ModeDir:
		default:
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "%s has %s, which is neither a file, a folder nor a symbolic link: remove it", f.noun, name)
		}
		if size += info.Size(); size > f.most {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "%s is larger than %d GiB: %s", f.noun, f.most>>30, f.advice)
		}
		h, err := tar.FileInfoHeader(info, filepath.ToSlash(link))
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = path.Join(f.name, name), 0, 0, "", "", tar.FormatPAX
		if d.IsDir() {
			h.Name += "/"
		}
		if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(out, file)
		return err
	})
}

// unpack writes the files of a layout to the folder. It refuses everything but folders and files below the folder. The
// caller checks what the files contain.
func unpack(from io.Reader, root *os.Root) error {
	left, entries := int64(maxLayout), 0
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return damaged(err)
		}
		name := filepath.FromSlash(path.Clean(strings.TrimSuffix(h.Name, "/")))
		if entries++; entries > maxEntries || h.Size > left || !filepath.IsLocal(name) {
			return plugin.Errorf(fairlead.ReasonImageInvalid, "the image that AWS CodeBuild returned is no image layout: %.100q is outside of the folder, or one of too many files or bytes", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = unwritten(name, root.MkdirAll(name, 0o700))
		case tar.TypeReg:
			left -= h.Size
			err = writeFile(root, name, in)
		default:
			return plugin.Errorf(fairlead.ReasonImageInvalid, "the image that AWS CodeBuild returned is no image layout: %.100q is neither a file nor a folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return unwritten(name, err)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unwritten(name, err)
	}
	_, err = io.Copy(f, reader{from})
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("unpack the image: %w", cerr)
	}
	return err
}

// unwritten returns the error of an entry that was not written: because the layout has two entries with its name, or because
// of the disk.
func unwritten(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return plugin.Errorf(fairlead.ReasonImageInvalid, "the image that AWS CodeBuild returned is no image layout: it has %.100q twice", name)
	}
	return fmt.Errorf("unpack the image: %w", err)
}

// reader marks errors of the archive, so that they are not taken for those of the disk.
type reader struct{ io.Reader }

func (r reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

func damaged(err error) error {
	return &plugin.Error{Reason: fairlead.ReasonBuilderUnavailable, Err: err,
		Message: fmt.Sprintf("the image that AWS CodeBuild built cannot be fetched: %v. Publish the app again", err)}
}
