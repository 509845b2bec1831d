package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/sqlite"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
)

// childEnv is an environment variable that contains the path of a file. If it is set, the
// test binary uses the queue in this file until it is killed, and prints each confirmed
// operation.
const childEnv = "QUEUE_TEST_CHILD"

func child(path string) error {
	ctx := context.Background()
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{})
	if err != nil {
		return err
	}
	q, err := sqlite.New(db, sqlite.Options{})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		body := fmt.Sprintf("job_%d", i)
		if err := q.Send(ctx, "q", []byte(body), 0); err != nil {
			return err
		}
		fmt.Println("sent", body)
		if i%3 > 0 {
			continue
		}
		m, err := q.Receive(ctx, "q", time.Hour, 0)
		if err != nil {
			return err
		}
		fmt.Println("received", string(m.Body))
		if i%2 > 0 {
			continue
		}
		fmt.Println("deleting", string(m.Body))
		if err := q.Delete(ctx, "q", m.Receipt); err != nil {
			return err
		}
		fmt.Println("deleted", string(m.Body))
	}
}

// killed runs the child until the child has printed n lines, and then kills it. It returns
// all lines that the child printed.
func killed(t *testing.T, path string, n int) (lines []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if lines = append(lines, scan.Text()); len(lines) == n {
			if err := cmd.Process.Kill(); err != nil { // SIGKILL
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // returns the error "signal: killed"
	if len(lines) < n {
		t.Fatalf("the child ended by itself after %d lines", len(lines))
	}
	return lines
}

func TestConfirmedOperationsSurviveKill(t *testing.T) {
	for _, n := range []int{1, 40, 57} {
		dir := t.TempDir()
		printed := map[string]string{} // by body, the last operation that the child printed
		for _, line := range killed(t, filepath.Join(dir, "queue.db"), n) {
			what, body, _ := strings.Cut(line, " ")
			printed[body] = what
		}
		// Two hours later all hidden messages are visible again.
		later := func() time.Time { return time.Now().Add(2 * time.Hour) }
		q, done := open(t, dir, sqlite.Options{Now: later})
		deliveries := map[string]int{}
		for {
			m, err := q.Receive(t.Context(), "q", time.Hour, 0)
			if errors.Is(err, queue.ErrNoMessage) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			deliveries[string(m.Body)] = m.Receives
		}
		done()
		for body, what := range printed {
			switch got := deliveries[body]; {
			case what == "sent" && got == 0, what == "received" && got != 2, what == "deleted" && got != 0:
				t.Errorf("killed after %d lines: %s was %s, but Receives is then %d", n, body, what, got)
			}
		}
	}
}
