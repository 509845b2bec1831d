package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/olareg/olareg"
	"github.com/olareg/olareg/config"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// imageLayers is the number of layers of the image, which have the same size.
const imageLayers = 4

// measureImage compares the deployment of an image with `regctl image copy`, between repositories of one registry in this process.
// Then it measures the memory of the program that copies.
func measureImage(ctx context.Context, b *bench) (err error) {
	clients, err := clientPrograms().Build(b.notes)
	if err != nil {
		return err
	}
	registry, err := startRegistry(filepath.Join(b.work, "registry"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.stop()) }()
	source := registry.host + "/vendor/web:1"
	if err := pushRandom(ctx, source, b.counts.imageBytes); err != nil {
		return err
	}
	p, err := startImagePlane(ctx, b, registry.host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	folder, err := b.writeApp("image", map[string]string{
		"app.yaml":       "fairlead: v1\nname: image\ncomponents:\n  web: {type: image, source: ./web}\n",
		"web/image.yaml": "image: " + source + "\n",
	})
	if err != nil {
		return err
	}
	if err := p.publish(ctx, folder); err != nil {
		return err
	}
	var ours, bare, ratio []float64
	for i := range 1 + b.counts.imageRounds {
		one, err := b.clientRun(ctx, filepath.Join(clients, "regctl"), nil,
			"image", "copy", "--host", "reg="+registry.host+",tls=disabled", source, fmt.Sprintf("%s/bare/%d/web:1", registry.host, i))
		if err != nil {
			return err
		}
		d, err := deployApp(ctx, p, "image", fmt.Sprintf("image-%d", i), "copies")
		if err != nil {
			return err
		}
		b.note("regctl %.2f s, a deployment %.2f s", one.Seconds(), d.took().Seconds())
		if i == 0 {
			continue // the first round loads the programs from disk
		}
		ours, bare = append(ours, d.took().Seconds()), append(bare, one.Seconds())
		ratio = append(ratio, d.took().Seconds()/one.Seconds())
	}
	b.set("image_s", median(ours))
	b.set("image_bare_s", median(bare))
	b.set("image_ratio", median(ratio))
	peak := watchPeak(b.path("bin/plugins/images"))
	_, err = deployApp(ctx, p, "image", "image-watched", "copies")
	most, perr := peak()
	b.set("image_rss_mib", most)
	return errors.Join(err, perr)
}

// startImagePlane starts a control plane with an agent whose registry for images has the host.
func startImagePlane(ctx context.Context, b *bench, host string) (*plane, error) {
	p, err := startPlane(ctx, b, "image")
	if err != nil {
		return nil, err
	}
	in := wire.CreateRunnerRequest{Name: "copies"}
	in.Text = "runner_configuration: {type: local}\nstate_storage_configuration: {type: local}\nregistry: {type: oci, url: \"http://" + host + "\", prefix: ours}\n"
	if _, err = p.CreateRunner(ctx, in); err == nil {
		_, err = p.startWith(ctx, "copies", agentOptions{tool: b.tool})
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// imageRegistry is a registry in this process that stores files.
type imageRegistry struct {
	host string
	stop func() error
}

func startRegistry(root string) (imageRegistry, error) {
	handler := olareg.New(config.Config{Storage: config.ConfigStorage{StoreType: config.StoreDir, RootDir: root, GC: config.ConfigGC{Frequency: -1}}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return imageRegistry{}, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return imageRegistry{host: l.Addr().String(), stop: func() error {
		err := server.Close()
		if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	}}, nil
}

// pushRandom pushes an image with random content of so many bytes.
func pushRandom(ctx context.Context, reference string, bytes int64) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	img, err := random.Image(bytes/imageLayers, imageLayers)
	if err != nil {
		return err
	}
	return remote.Write(ref, img, remote.WithContext(ctx))
}

// watchPeak watches the processes of a program. The returned function ends the watch, and returns the largest memory that one of
// them had, in MiB. It returns an error if there was none.
func watchPeak(program string) func() (float64, error) {
	stop, done := make(chan struct{}), make(chan float64)
	go func() {
		most := 0.0
		for {
			most = max(most, peakOf(program))
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() (float64, error) {
		close(stop)
		most := <-done
		if most == 0 {
			return 0, fmt.Errorf("no process of %s was seen", program)
		}
		return most, nil
	}
}

// peakOf returns the largest VmHWM of the running processes of a program, in MiB; 0 if there are none.
func peakOf(program string) (most float64) {
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, path := range paths {
		if exe, err := os.Readlink(path + "/exe"); err != nil || exe != program {
			continue
		}
		status, err := os.Open(path + "/status")
		if err != nil {
			continue // it has ended
		}
		for lines := bufio.NewScanner(status); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64) // the kernel writes a number
				most = max(most, kib/1024)
			}
		}
		status.Close()
	}
	return most
}
