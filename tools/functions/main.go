// Command functions builds the mains below ./functions for Lambda: static, for arm64 on
// provided.al2023. Each binary is named bootstrap and has its own folder. The code in
// infra packages the folder. Beside the folder is a zip; each checkout of a commit gives the same
// bytes, with or without tags and the files that git ignores. The command prints the sizes and fails if a zip is larger than MaxZip.
package main

import (
	"archive/zip"
	"compress/flate"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// MaxZip is the size of the largest permitted zip, in bytes. Lambda's own limit is 50 MB.
// MaxZip keeps cold starts short, because a cold start downloads and unpacks the zip.
const MaxZip = 15 << 20

func main() {
	out := flag.String("out", "bin/functions", "folder for the builds")
	flag.Parse()
	if err := run(context.Background(), "arm64", "github.com/fairlead/fairlead/functions/...", *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "functions:", err)
		os.Exit(1)
	}
}

// run builds the mains that match pattern, a pattern of packages, for arch, a GOARCH, and packs them.
func run(ctx context.Context, arch, pattern, out string, w io.Writer) error {
	list, err := output(ctx, arch, "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, pattern)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "function\tbinary, MB\tzip, MB\t")
	var large error
	for main := range strings.FieldsSeq(list) {
		name := path.Base(main)
		binary := filepath.Join(out, name, "bootstrap")
		if _, err := output(ctx, arch, "build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", binary, main); err != nil {
			return err
		}
		archive := filepath.Join(out, name+".zip")
		if err := pack(binary, archive); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		sizes := make([]int64, 2)
		for i, file := range []string{binary, archive} {
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			sizes[i] = info.Size()
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t\n", name, float64(sizes[0])/(1<<20), float64(sizes[1])/(1<<20))
		if sizes[1] > MaxZip {
			large = errors.Join(large, fmt.Errorf("%s has %d bytes, more than the limit of %d", archive, sizes[1], MaxZip))
		}
	}
	return errors.Join(table.Flush(), large)
}

// output runs the go command with Lambda's GOOS and returns its standard output.
func output(ctx context.Context, arch string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(b), nil
}

// pack writes the file as an executable into a zip, with a fixed time. So the same build
// gives the same zip, and the deployment skips an unchanged function.
func pack(file, archive string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	z := zip.NewWriter(out)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	h.SetMode(0o755)
	entry, err := z.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(entry, in)
	}
	return errors.Join(err, z.Close(), out.Close())
}
