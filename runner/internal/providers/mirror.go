//go:build unix

package providers

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/runner/workspace"
)

// MirrorLocation is the parsed location of a mirror of provider packages: a bucket of S3, or a folder. The zero value means
// that there is no mirror.
type MirrorLocation struct {
	Bucket string // name of the bucket; "": the mirror is in Folder
	Prefix string // of the keys in the bucket; "", or ends with a slash
	Folder string // absolute path
}

// ParseMirror parses s3://<bucket>/<prefix> or the absolute path of a folder; "" is no mirror.
func ParseMirror(location string) (MirrorLocation, error) {
	if at, ok := strings.CutPrefix(location, "s3://"); ok {
		bucket, prefix, _ := strings.Cut(at, "/")
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			prefix += "/"
		}
		if bucket == "" || strings.ContainsAny(bucket, ":@?#") {
			return MirrorLocation{}, fmt.Errorf("the provider mirror %q names no bucket; the form is s3://BUCKET/PREFIX", location)
		}
		return MirrorLocation{Bucket: bucket, Prefix: prefix}, nil
	}
	if location != "" && !filepath.IsAbs(location) {
		return MirrorLocation{}, fmt.Errorf("the provider mirror %q is neither s3://BUCKET/PREFIX nor an absolute path", location)
	}
	return MirrorLocation{Folder: location}, nil
}

// Locked is the entry of a provider in a dependency lock file.
type Locked struct {
	Address string   // <host>/<namespace>/<type>
	Version string   // without a leading v
	Hashes  []string // h1: of the content, zh: of the archive
}

// Archive returns the name of the provider's archive for a platform, such as linux_arm64, in a mirror. It is the name in the
// packed layout of a filesystem mirror of OpenTofu and Terraform, as `providers mirror` makes it. It returns false for an entry
// from which no safe name can be made.
func (l Locked) Archive(platform string) (string, bool) {
	name := fmt.Sprintf("%s/terraform-provider-%s_%s_%s.zip", l.Address, path.Base(l.Address), l.Version, platform)
	return name, strings.Count(name, "/") == 3 && fs.ValidPath(name) && !strings.ContainsAny(name, "\\\"$%\n ")
}

// The limits of an archive. The largest public providers have about 200 MB, and 900 MB unpacked.
const (
	MaxArchive  = 1 << 30 // bytes
	maxUnpacked = 8 << 30 // bytes
)

// ErrOtherContent reports that an archive has none of the hashes in the lock file.
var ErrOtherContent = errors.New("the archive has none of the hashes in the lock file")

// Folder returns the name of the provider's package for a platform in a cache of the tools, such as Private: the name of a Package.
func (l Locked) Folder(platform string) string { return path.Join(l.Address, l.Version, platform) }

// Unpack compares the archive in a file with the hashes of the lock file while it unpacks the archive into the folder to, which
// appears as a whole, and replaces an earlier one. Only the lock file is trusted, because others can write to the mirror. The error
// is ErrOtherContent if no hash matches; then the folder to is as before. The archive is inflated once: that takes most of the time.
// If only the hash of the archive is locked, the folder to is as before, too: Terraform refuses an unpacked provider then, and `init`
// unpacks the archive.
func (l Locked) Unpack(file, to string) error {
	z, err := zip.OpenReader(file)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return ErrOtherContent
	}
	defer z.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("unpack the archive: %w", err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(to), ".new-*")
	if err != nil {
		return fmt.Errorf("unpack the archive: %w", err)
	}
	defer workspace.RemoveTree(staging)
	h1, err := unpack(z.File, staging)
	if err != nil {
		return err
	}
	if !slices.Contains(l.Hashes, h1) {
		if zh, err := hashArchive(file); err != nil || !slices.Contains(l.Hashes, zh) {
			return errors.Join(err, ErrOtherContent)
		}
		return nil
	}
	if err := errors.Join(workspace.RemoveTree(to), os.Rename(staging, to)); err != nil {
		return fmt.Errorf("unpack the archive: %w", err)
	}
	return nil
}

// unpack writes the files of an archive into the folder, and returns their h1 hash. The error is ErrOtherContent if the archive is
// damaged, or has anything else than regular files and folders.
func unpack(archive []*zip.File, folder string) (h1 string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer root.Close()
	var names []string
	var unpacked uint64
	files := map[string]*zip.File{}
	for _, f := range archive {
		unpacked += min(f.UncompressedSize64, maxUnpacked+1)
		name, isFolder := strings.CutSuffix(f.Name, "/")
		if _, twice := files[f.Name]; twice || unpacked > maxUnpacked || !fs.ValidPath(name) || !isFolder && !f.Mode().IsRegular() {
			return "", ErrOtherContent
		}
		names = append(names, f.Name)
		files[f.Name] = f
	}
	h1, err = dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		f := files[name]
		if strings.HasSuffix(name, "/") { // the hash has folders too, without content
			return io.NopCloser(strings.NewReader("")), root.MkdirAll(strings.TrimSuffix(name, "/"), 0o700)
		}
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return nil, err
		}
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.Mode().Perm()&0o100|0o600)
		if err != nil {
			return nil, err
		}
		in, err := f.Open()
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		return &teed{io.TeeReader(io.LimitReader(in, int64(f.UncompressedSize64)+1), out), in, out}, nil
	})
	if _, ofDisk := errors.AsType[*fs.PathError](err); ofDisk {
		return "", fmt.Errorf("unpack the archive: %w", err)
	}
	if err != nil {
		return "", ErrOtherContent
	}
	return h1, nil
}

// teed reads a file of an archive, and writes to out what it reads.
type teed struct {
	io.Reader
	in  io.Closer
	out io.Closer
}

func (t *teed) Close() error { return errors.Join(t.in.Close(), t.out.Close()) }

// hashArchive returns the zh hash of an archive.
func hashArchive(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("hash the archive: %w", err)
	}
	return "zh:" + hex.EncodeToString(sum.Sum(nil)), nil
}
