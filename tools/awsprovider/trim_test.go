package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const head = "module " + providerModule + "\n\ngo 1.25\n"

// source returns the files of a provider with four services. The test keeps ec2 and s3.
// s3 needs the client of s3control. Neither ec2 nor s3 needs xray.
func source() map[string]string {
	return map[string]string{
		"go.mod":  head,
		"go.sum":  "",
		"main.go": "package main\n\nimport \"" + providerModule + "/internal/provider/sdkv2\"\n\nfunc main() { sdkv2.Provider() }\n",
		servicesFile: `package sdkv2

import (
	"` + providerModule + `/internal/conns"
	"` + providerModule + `/internal/service/ec2"
	"` + providerModule + `/internal/service/s3"
	"` + providerModule + `/internal/service/s3control"
	"` + providerModule + `/internal/service/xray"
)

func Provider() []conns.ServicePackage {
	v := []conns.ServicePackage{
		ec2.ServicePackage(),
		s3.ServicePackage(),
		s3control.ServicePackage(),
		xray.ServicePackage(),
	}
	return v
}
`,
		"internal/conns/conns.go": "package conns\n\ntype ServicePackage any\n\ntype AWSClient struct{}\n",
		clientsFile: `package conns

import (
	"sdk/ec2"
	"sdk/s3"
	s3ctl "sdk/s3control"
	"sdk/xray"
)

func (c *AWSClient) EC2Client() *ec2.Client { return nil }

// S3Client is kept with its comment.
func (c *AWSClient) S3Client() *s3.Client { return nil }

func (c *AWSClient) S3ControlClient() *s3ctl.Client { return nil }

func (c *AWSClient) XRayClient() *xray.Client { return nil }
`,
		"internal/service/ec2/ec2.go":         "package ec2\n\nfunc ServicePackage() any { return nil }\n\nvar _ = c.EC2Client\n",
		"internal/service/ec2/ec2_test.go":    "package ec2\n\nvar _ = c.XRayClient\n",
		"internal/service/ec2/ec2_windows.go": "package ec2\n\nimport _ \"" + providerModule + "/internal/service/xray\"\n",
		"internal/service/s3/s3.go": "package s3\n\nimport (\n\t_ \"embed\"\n\n\t\"" + providerModule + "/internal/service/s3control\"\n)\n\n" +
			"//go:embed text/*.hcl\nvar text string\n\nvar _ = c.S3Client(s3control.X)\n",
		"internal/service/s3/text/one.hcl":        "one",
		"internal/service/s3/text/readme":         "not embedded",
		"internal/service/s3control/s3control.go": "package s3control\n\nvar X = c.S3ControlClient\n",
		"internal/service/xray/xray.go":           "package xray\n\nvar X = c.XRayClient\n",
		"website/index.html":                      "not imported",
	}
}

func writeAll(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		if err := write(filepath.Join(dir, name), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTrimKeepsNeededCode(t *testing.T) {
	files := source()
	dst := t.TempDir()
	if err := trim(writeAll(t, files), dst, []string{"ec2", "s3"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(dst, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(name)
		below, _ := filepath.Rel(dst, name)
		got[filepath.ToSlash(below)] = string(body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"internal/service/xray/xray.go", "internal/service/ec2/ec2_test.go", "internal/service/ec2/ec2_windows.go",
		"internal/service/s3/text/readme", "website/index.html"} {
		delete(files, left)
	}
	for _, trimmed := range []string{servicesFile, clientsFile} {
		for line := range strings.Lines(files[trimmed]) {
			if strings.Contains(strings.ToLower(line), "xray") == strings.Contains(got[trimmed], line) && strings.TrimSpace(line) != "" {
				t.Errorf("%s: trim must remove the lines with xray and keep the others, but did not for %q", trimmed, line)
			}
		}
		delete(files, trimmed)
		delete(got, trimmed)
	}
	if !maps.Equal(got, files) {
		t.Errorf("got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files)))
	}
}

func TestTrimRefusesUnexpectedSource(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]string)
		want   string
	}{
		"missing service":           {func(f map[string]string) { f[servicesFile] = strings.ReplaceAll(f[servicesFile], "ec2", "vpc") }, "does not list the service ec2"},
		"no methods in clientsFile": {func(f map[string]string) { f[clientsFile] = "package conns\n" }, "no methods to remove"},
		"missing file of services":  {func(f map[string]string) { delete(f, servicesFile) }, "service_packages_gen.go"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := source()
			test.change(files)
			if err := trim(writeAll(t, files), t.TempDir(), []string{"ec2", "s3"}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
