package control_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// A reader that continues from its last position gets each byte of each attempt once and in
// order. The reader waits while the job runs, and also between two attempts. At last it
// gets the end of the log.
func TestLogIsReadAcrossAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		j, err := p.CheckRunner(p.ctx, me, "local", "")
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan string, 100)
		go func() {
			defer close(read)
			var epoch, offset int64
			for {
				k, err := p.ReadLog(p.ctx, org, j.ID, epoch, offset, 20*time.Second)
				if err != nil {
					read <- err.Error()
					return
				}
				if len(k.Data) > 0 {
					read <- fmt.Sprintf("%d@%d %s", k.Epoch, k.Offset, k.Data)
				}
				if k.Done {
					return
				}
				epoch, offset = k.Epoch, k.Next
			}
		}()
		expect := func(want string) {
			t.Helper()
			synctest.Wait() // no time passes here, so a reader that polls would fail the test
			select {
			case got, ok := <-read:
				if got != want || !ok {
					t.Errorf("read %q, want %q", got, want)
				}
			default:
				t.Errorf("nothing was read, want %q", want)
			}
		}
		attempt := func(step string) control.Holder {
			t.Helper()
			c, err := p.Claim(p.ctx, p.session, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, step); err != nil {
				t.Fatal(err)
			}
			return control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
		}
		write := func(h control.Holder, offset int64, text string) {
			t.Helper()
			if _, err := p.AppendLog(p.ctx, h, offset, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}

		first := attempt("step-one")
		write(first, 0, "one")
		expect("1@0 one")
		write(first, 3, "two")
		expect("1@3 two")
		p.died(first)
		p.sleep(5 * time.Second) // the pause between the first and the second attempt

		second := attempt("step-two")
		write(second, 0, "three")
		expect("2@0 three")
		if _, err := p.AppendLog(p.ctx, second, 99, []byte("gap")); fairlead.CodeOf(err) != "log-offset" {
			t.Errorf("a gap: %v", err)
		}
		rep := control.Report{Outcome: control.OutcomeSucceeded, LogSize: 8, LogCRC32: crc32.ChecksumIEEE([]byte("three..."))}
		if err := p.FinishJob(p.ctx, second, rep); fairlead.CodeOf(err) != "log-offset" {
			t.Errorf("a report whose log has not arrived: %v", err)
		}
		write(second, 5, "...")
		expect("2@5 ...")
		if err := p.FinishJob(p.ctx, second, rep); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, ok := <-read; ok {
			t.Errorf("the reader got %q after the end", got)
		}
	})
}

// If a job is canceled while a renewal of its step waits, the renewal is answered at once.
func TestCancelationAnswersWaitingRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		j, err := p.CheckRunner(p.ctx, me, "local", "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.StartJob(p.ctx, c.ID, 1, "the-step"); err != nil {
			t.Fatal(err)
		}
		answered := make(chan time.Duration, 1)
		go func() {
			asked := time.Now()
			got, err := p.RenewLease(p.ctx, control.Holder{Job: j.ID, Epoch: 1}, 0, 15*time.Second)
			if err != nil || got.Stop != "canceled" {
				t.Errorf("renewal: %v, stop %q", err, got.Stop)
			}
			answered <- time.Since(asked)
		}()
		synctest.Wait()
		if _, err := p.CancelJob(p.ctx, org, j.ID); err != nil {
			t.Fatal(err)
		}
		if d := <-answered; d != 0 {
			t.Errorf("the cancelation was answered after %s", d)
		}
	})
}

// If a job is queued while a claim waits, the claim gets the job at once.
func TestClaimWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		claimed := make(chan time.Duration, 1)
		go func() {
			asked := time.Now()
			if _, err := p.Claim(p.ctx, p.session, 20*time.Second); err != nil {
				t.Error(err)
			}
			claimed <- time.Since(asked)
		}()
		synctest.Wait()
		if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
			t.Fatal(err)
		}
		if d := <-claimed; d != 0 {
			t.Errorf("claimed after %s", d)
		}
	})
}

// If the queue lost the wake-up of a job, the sweep sends the wake-up again.
func TestLostWakeUpIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
			t.Fatal(err)
		}
		if err := p.Queue.Drop(p.ctx, "runner-"+string(p.session.Runner)); err != nil {
			t.Fatal(err)
		}
		p.sleep(31 * time.Second)
		if s, err := p.Sweep(p.ctx); err != nil || s.Woken != 1 {
			t.Fatalf("swept %+v, %v", s, err)
		}
		if _, err := p.Claim(p.ctx, p.session, 0); err != nil {
			t.Errorf("the job was not claimed: %v", err)
		}
	})
}

// A control plane on one machine has its wake-ups in memory. When it starts again, each queued job is claimed at once, and no other job
// is woken.
func TestQueuedJobsAreWokenAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		const jobs = 1200 // more than a page of the table has
		for range jobs {
			if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
				t.Fatal(err)
			}
		}
		p.begin() // this job runs
		p.Queue = memory.New(time.Now, memory.DefaultMaxReceives)
		if n, err := p.WakeQueued(p.ctx); err != nil || n != jobs-1 {
			t.Fatalf("%d wake-ups were sent, %v", n, err)
		}
		for range jobs - 1 {
			if _, err := p.Claim(p.ctx, p.session, 0); err != nil {
				t.Fatalf("a queued job was not claimed: %v", err)
			}
		}
		if _, err := p.Claim(p.ctx, p.session, 0); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("another job was woken: %v", err)
		}
	})
}

// When a step died, its agent can send the rest of the step's log until the agent reports
// the death. An agent of another runner cannot do this.
func TestAgentCompletesTheLogOfADeadStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
			t.Fatal(err)
		}
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.StartJob(p.ctx, c.ID, 1, "the-step"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.RescueLog(p.ctx, p.session, c.ID, 1, 0, []byte("last lines")); err != nil {
			t.Error(err)
		}
		stranger := p.session
		stranger.Runner = "run_other"
		if _, err := p.RescueLog(p.ctx, stranger, c.ID, 1, 10, []byte("!")); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("an agent of another runner: %v", err)
		}
		p.died(control.Holder{Job: c.ID, Epoch: 1})
		if _, err := p.RescueLog(p.ctx, p.session, c.ID, 1, 10, []byte("!")); fairlead.KindOf(err) != fairlead.KindStale {
			t.Errorf("after the death was reported: %v", err)
		}
		k, err := p.ReadLog(p.ctx, org, c.ID, 1, 0, 0)
		if err != nil || string(k.Data) != "last lines" || !k.Truncated {
			t.Errorf("the log is %q, truncated %v, %v", k.Data, k.Truncated, err)
		}
	})
}

// When the agent reports the death of a step, it also reports the size and checksum of the
// step's log. If the stored log is different, or the agent reports no size, the log is
// marked as truncated.
func TestLogOfDeadStepIsMarkedIfIncomplete(t *testing.T) {
	const data = "last lines"
	for name, tc := range map[string]struct {
		reported  *control.WholeLog
		truncated bool
	}{
		"no report":              {nil, true},
		"nothing is missing":     {&control.WholeLog{Size: int64(len(data)), CRC32: crc32.ChecksumIEEE([]byte(data))}, false},
		"bytes are missing":      {&control.WholeLog{Size: int64(len(data)) + 1, CRC32: crc32.ChecksumIEEE([]byte(data + "!"))}, true},
		"other bytes are stored": {&control.WholeLog{Size: int64(len(data)), CRC32: 1}, true},
		"extra bytes are stored": {&control.WholeLog{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
					t.Fatal(err)
				}
				c, err := p.Claim(p.ctx, p.session, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.StartJob(p.ctx, c.ID, 1, "the-step"); err != nil {
					t.Fatal(err)
				}
				if _, err := p.RescueLog(p.ctx, p.session, c.ID, 1, 0, []byte(data)); err != nil {
					t.Fatal(err)
				}
				if err := p.ReportDeath(p.ctx, p.session, c.ID, control.Death{Epoch: 1, Cause: "killed", Signal: "killed", Log: tc.reported}); err != nil {
					t.Fatal(err)
				}
				k, err := p.ReadLog(p.ctx, org, c.ID, 1, 0, 0)
				if err != nil || string(k.Data) != data || k.Truncated != tc.truncated {
					t.Errorf("the log is %q, truncated %v, %v", k.Data, k.Truncated, err)
				}
			})
		})
	}
}

// An agent that reports draining gets no more jobs.
func TestDrainingSessionClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
			t.Fatal(err)
		}
		s := p.session
		s.Draining = true
		if _, err := p.Claim(p.ctx, s, 0); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("a draining session claimed: %v", err)
		}
	})
}

// The report of a job brings the last bytes of its log, or all of them, so that a short job sends no request for the log alone.
func TestReportBringsTheEndOfTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		before string // appended before the report
		tail   control.LogTail
		whole  string // the log as its writer counted it
		code   fairlead.Code
		stored string
		cut    bool // the log is truncated
	}{
		"the whole log":               {"", control.LogTail{Data: []byte("all of it")}, "all of it", "", "all of it", false},
		"its end":                     {"one ", control.LogTail{Offset: 4, Data: []byte("two")}, "one two", "", "one two", false},
		"bytes that arrived before":   {"one two", control.LogTail{Offset: 4, Data: []byte("two")}, "one two", "", "one two", false},
		"bytes after a gap":           {"one ", control.LogTail{Offset: 6, Data: []byte("two")}, "one ..two", fairlead.CodeLogOffset, "one ", false},
		"other bytes than are stored": {"one two", control.LogTail{Offset: 4, Data: []byte("2, and three")}, "one 2, and three", fairlead.CodeLogOffset, "one two", false},
		"other bytes than it counted": {"one two", control.LogTail{Offset: 4, Data: []byte("ten")}, "one ten", "", "one two", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
					t.Fatal(err)
				}
				_, h := p.begin()
				if _, err := p.AppendLog(p.ctx, h, 0, []byte(c.before)); err != nil {
					t.Fatal(err)
				}
				rep := control.Report{Outcome: control.OutcomeSucceeded, LogSize: int64(len(c.whole)), LogCRC32: crc32.ChecksumIEEE([]byte(c.whole)), LogTail: c.tail}
				for range 2 { // the step repeats a report whose answer it did not get
					if err := p.FinishJob(p.ctx, h, rep); fairlead.CodeOf(err) != c.code {
						t.Fatalf("the report gets %v, want %q", err, c.code)
					}
				}
				chunk, err := p.Log.Read(p.ctx, joblog.Stream{Job: string(h.Job), Epoch: h.Epoch}, 0, joblog.MaxRead)
				if err != nil || string(chunk.Data) != c.stored || chunk.Info.Ended != (c.code == "") || chunk.Info.Truncated != c.cut {
					t.Errorf("the log is %q, %+v, %v", chunk.Data, chunk.Info, err)
				}
			})
		})
	}
}
