package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Unpack writes the files of the tar into dst. dst should be empty: Unpack never replaces a
// file. For any archive, it writes nothing outside dst and creates no links. Files get mode
// 0644, or 0755 if their owner may execute them, minus the umask.
//
// Errors about the archive are of KindInvalid with the code "artifact-invalid", or with a
// code for the exceeded limit. After an error, dst may have some of the files.
func Unpack(archive io.Reader, dst *os.Root, limits Limits) error {
	l := limits.WithDefaults()
	in := &boundedReader{r: archive, left: l.TarBytes()}
	tr := tar.NewReader(in)
	u := unpacker{dst: dst, limits: l, names: Names{}}
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return in.checkEnd()
		}
		if err != nil {
			return Damaged("", "is not a complete tar archive", err)
		}
		if err := u.add(header, tr); err != nil {
			return err
		}
	}
}

type unpacker struct {
	dst     *os.Root
	limits  Limits
	entries int
	bytes   int64
	names   Names
}

func (u *unpacker) add(h *tar.Header, content io.Reader) error {
	if u.entries++; u.entries > u.limits.Entries {
		return Invalid(fairlead.CodeArtifactTooManyEntries, "", "the artifact has more than %d entries", u.limits.Entries)
	}
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	switch {
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return Damaged(name, fmt.Sprintf("has the type %q; only files and folders are allowed", h.Typeflag), nil)
	case isSparse(h):
		return Damaged(name, "is a sparse file", nil)
	case !fs.ValidPath(name) || name == ".":
		// ValidPath refuses absolute paths, "..", "." and empty segments.
		return Damaged(name, "is not a clean path inside the folder", nil)
	case h.Mode&^0o777 != 0:
		return Damaged(name, fmt.Sprintf("has the mode %#o; only permission bits are allowed", h.Mode), nil)
	}
	if err := u.limits.CheckPath(ArtifactPath(), name); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return u.addDir(name)
	}
	return u.addFile(name, h, content)
}

func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (u *unpacker) addDir(name string) error {
	// Record the path of a file in the folder, so that the folder counts as a parent
	// directory. So a folder may occur twice, but not with two spellings.
	if earlier, ok := u.names.Add(name + "/."); !ok && earlier != name+"/." {
		return Damaged(name, fmt.Sprintf("collides with %q", earlier), nil)
	}
	if err := u.dst.MkdirAll(name, 0o755); err != nil {
		return fmt.Errorf("unpack folder %q: %w", name, err)
	}
	return nil
}

func (u *unpacker) addFile(name string, h *tar.Header, content io.Reader) error {
	switch earlier, ok := u.names.Add(name); {
	case !ok && earlier == name:
		return Damaged(name, "occurs twice", nil)
	case !ok:
		return Damaged(name, fmt.Sprintf("collides with %q", earlier), nil)
	case h.Size > u.limits.FileBytes:
		return Invalid(fairlead.CodeArtifactFileTooLarge, "", "%q in the artifact has %d bytes, the limit for one file is %s",
			Abbreviate(name), h.Size, FormatBytes(u.limits.FileBytes))
	case u.bytes+h.Size > u.limits.Bytes:
		return Invalid(fairlead.CodeArtifactTooLarge, "", "the artifact has more than %s of files", FormatBytes(u.limits.Bytes))
	}
	u.bytes += h.Size

	if err := u.dst.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("unpack folder of %q: %w", name, err)
	}
	perm := fs.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		perm = 0o755
	}
	f, err := u.dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("unpack file %q: %w", name, err)
	}
	_, copyErr := io.CopyN(f, content, h.Size)
	closeErr := f.Close()
	switch {
	case errors.Is(copyErr, io.EOF), errors.Is(copyErr, io.ErrUnexpectedEOF):
		return Damaged(name, "is truncated", copyErr)
	case copyErr != nil:
		return fmt.Errorf("unpack file %q: %w", name, copyErr)
	case closeErr != nil:
		return fmt.Errorf("unpack file %q: %w", name, closeErr)
	}
	return nil
}

// Damaged returns the error for an artifact that must not be used. name is the damaged file
// in the artifact, or "" if the whole artifact is damaged.
func Damaged(name, reason string, cause error) error {
	e := Invalid(fairlead.CodeArtifactInvalid, "Pack and push the component again. Do not use an artifact that another tool created or changed.",
		"the artifact %s", reason)
	if name != "" {
		e.Message = fmt.Sprintf("%q in the artifact %s", Abbreviate(name), reason)
	}
	e.Err = cause
	return e
}

var errTooLong = errors.New("the archive exceeds the size that its limits allow")

// boundedReader limits the number of bytes that the tar reader reads. It also records
// whether the tar reader reached the end of the input. The tar reader itself accepts an
// archive without an end mark, so checkEnd needs this record.
type boundedReader struct {
	r     io.Reader
	left  int64
	ended bool
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if n > 0 {
		return n, nil // the next read returns the error
	}
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// checkEnd checks that the end mark exists and that only zeros follow it. Call it after the
// tar's last entry.
func (b *boundedReader) checkEnd() error {
	if b.ended {
		return Damaged("", "is truncated", nil)
	}
	buf := make([]byte, 4096)
	for {
		n, err := b.Read(buf)
		for _, c := range buf[:n] {
			if c != 0 {
				return Damaged("", "has data after its end", nil)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return Damaged("", "cannot be read completely", err)
		}
	}
}
