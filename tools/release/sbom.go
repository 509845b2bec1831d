package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom is the list of parts of an archive or image. It is read from the finished file, so that it
// has what is in the file, not what the build should have put there.
type sbom struct {
	about cdx.Component
	parts map[string]cdx.Component // by their package URL
}

// newSBOM returns an empty list. Kind is "application" or "container".
func newSBOM(name, version string, kind cdx.ComponentType) sbom {
	return sbom{about: cdx.Component{BOMRef: name, Type: kind, Name: name, Version: version}, parts: map[string]cdx.Component{}}
}

func (s sbom) add(kind cdx.ComponentType, name, version, url string) {
	s.parts[url] = cdx.Component{BOMRef: url, Type: kind, Name: name, Version: version, PackageURL: url}
}

// addTar adds the modules of all Go programs of an archive, and the toolchain that built each.
func (s sbom) addTar(r io.Reader) error {
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || h.Mode&0o111 == 0 {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(content, []byte("\x7fELF")) {
			continue // a script
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			continue // a program of Debian: addDebian has its package
		}
		s.add(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go"))
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			s.addModule(info.Main.Path, info.Main.Version)
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			s.addModule(m.Path, m.Version)
		}
	}
}

func (s sbom) addModule(name, version string) {
	s.add(cdx.ComponentTypeLibrary, name, version, "pkg:golang/"+name+"@"+version)
}

// packagesFile has the pinned packages of the image with a shell: on each line the architecture, the path and the SHA-256.
const packagesFile = "infra/images/internal/image/packages.txt"

// addDebian adds the packages of Debian that a file pins for an architecture.
func (s sbom) addDebian(file, arch string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != arch {
			continue
		}
		// The name of a package's file is NAME_VERSION_ARCHITECTURE.deb.
		parts := strings.Split(strings.TrimSuffix(path.Base(f[1]), ".deb"), "_")
		if len(parts) != 3 {
			return fmt.Errorf("%s: %s is no name of a package", file, f[1])
		}
		s.add(cdx.ComponentTypeLibrary, parts[0], parts[1], fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", parts[0], strings.ReplaceAll(parts[1], "+", "%2B"), parts[2]))
	}
	return nil
}

// write writes the list in CycloneDX's JSON. It has no time and no serial number, so that the same parts give the same file.
func (s sbom) write(file string) (err error) {
	list := make([]cdx.Component, 0, len(s.parts))
	for _, p := range s.parts {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b cdx.Component) int { return cmp.Compare(a.PackageURL, b.PackageURL) })
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Component: &s.about}
	b.Components = &list
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b)
}

// describeArchive writes the SBOM of an archive.
func (r release) describeArchive(file, name string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // opened for reading
	content, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	s := newSBOM(name, r.version, cdx.ComponentTypeApplication)
	if err := s.addTar(content); err != nil {
		return fmt.Errorf("list the parts of %s: %w", name, err)
	}
	return s.write(strings.TrimSuffix(file, ".tar.gz") + ".cdx.json")
}
