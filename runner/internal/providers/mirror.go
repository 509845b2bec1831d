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

// Verify compares the archive in a file with the hashes of the lock file. Only the lock file is trusted, because others can
// write to the mirror. The error is ErrOtherContent if no hash matches.
func (l Locked) Verify(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("hash the archive: %w", err)
	}
	if slices.Contains(l.Hashes, "zh:"+hex.EncodeToString(sum.Sum(nil))) {
		return nil
	}
	z, err := zip.OpenReader(file)
	if err != nil {
		return ErrOtherContent
	}
	defer z.Close()
	var unpacked uint64
	for _, entry := range z.File {
		if unpacked += min(entry.UncompressedSize64, maxUnpacked); unpacked > maxUnpacked {
			return ErrOtherContent
		}
	}
	if h1, err := dirhash.HashZip(file, dirhash.Hash1); err != nil || !slices.Contains(l.Hashes, h1) {
		return ErrOtherContent
	}
	return nil
}
