package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tributary/bench/engine"
	"tributary/bench/process"
	"tributary/bench/role"
)

// tier is a tributary of the chain.
type tier struct {
	cmd        *exec.Cmd
	log        *os.File
	xds, admin string
	watcher    *child // looks when changes arrive; the last tier has clients for that
}

// startTier starts the n-th tributary, which reads from the source, and sends compressed or not.
func startTier(binary, dir string, n int, source, compression string) (*tier, error) {
	xds, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, fmt.Sprintf("tier%d.log", n)))
	if err != nil {
		return nil, err
	}
	t := &tier{log: log, xds: xds, admin: admin}
	config := filepath.Join(dir, fmt.Sprintf("tier%d.yaml", n))
	text := fmt.Sprintf("listen: {xds: %q, admin: %q}\nstateDir: \"off\"\ncompression: %s\nconfigSources: [{name: source, address: %q}]\n",
		xds, admin, compression, source)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	t.cmd = exec.Command(binary, "serve", "-c", config)
	t.cmd.Stdout, t.cmd.Stderr = log, log
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return t, nil
}

func (t *tier) stop() {
	if t.watcher != nil {
		t.watcher.stop()
	}
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait()
	_ = t.log.Close()
}

// awaitReady waits until the tributary has read its source.
func (t *tier) awaitReady(deadline time.Time) error {
	for {
		body, err := t.get("/-/ready")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the tributary at %s is not ready: %w: %s; its log ends with %q", t.admin, err, body, tail(t.log.Name()))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (t *tier) get(path string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Get("http://" + t.admin + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}

// sent returns the traffic of the tributary to its readers, from its metrics, without that of the watcher, from the
// watcher.
func (t *tier) sent(limit time.Duration) (traffic role.Traffic, err error) {
	page, err := t.get("/metrics")
	if err != nil {
		return traffic, err
	}
	if traffic.Received, err = sum(page, "tributary_xds_responses_total{"); err != nil {
		return traffic, err
	}
	if traffic.Bytes, err = sum(page, "tributary_xds_response_bytes_total{"); err != nil {
		return traffic, err
	}
	if t.watcher == nil {
		return traffic, nil
	}
	var watched role.Traffic
	if err := t.watcher.call(limit, "Traffic", struct{}{}, &watched); err != nil {
		return traffic, err
	}
	traffic.Received -= watched.Received
	traffic.Bytes -= watched.Bytes
	return traffic, nil
}

// inUse returns the memory that the tributary needs: the heap after a garbage collection, and stacks. Its resident set
// has also the memory that it will return to the system later.
func (t *tier) inUse() (uint64, error) {
	if _, err := t.get("/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}
	page, err := t.get("/metrics")
	if err != nil {
		return 0, err
	}
	heap, err := sum(page, "go_memstats_heap_alloc_bytes ")
	if err != nil {
		return 0, err
	}
	stacks, err := sum(page, "go_memstats_stack_inuse_bytes ")
	return heap + stacks, err
}

// sum adds up a metric over its labels.
func sum(page, prefix string) (total uint64, err error) {
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), prefix) {
			continue
		}
		fields := strings.Fields(lines.Text())
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %w", err)
		}
		total += uint64(value)
	}
	return total, nil
}

// tierUse is the usage and the traffic of a tier so far.
type tierUse struct {
	cpu         time.Duration
	inUse, peak uint64
	sent        role.Traffic
}

// begin returns the usage and the traffic of the tiers before a step, and begins a new peak of their memory. The CPU is
// read last: the other queries cost a tier some, too.
func (r *tiersRunner) begin() ([]tierUse, error) {
	use := make([]tierUse, len(r.tiers))
	for i, t := range r.tiers {
		var err error
		if use[i].sent, err = t.sent(r.Timeout); err != nil {
			return nil, err
		}
		process.ResetPeak(t.cmd.Process.Pid)
	}
	return use, r.rest(use)
}

// end returns the usage and the traffic of the tiers after a step. The CPU is read first.
func (r *tiersRunner) end() ([]tierUse, error) {
	use := make([]tierUse, len(r.tiers))
	if err := r.rest(use); err != nil {
		return nil, err
	}
	for i, t := range r.tiers {
		var err error
		if use[i].sent, err = t.sent(r.Timeout); err != nil {
			return nil, err
		}
		_, use[i].peak = process.Memory(t.cmd.Process.Pid)
		if use[i].inUse, err = t.inUse(); err != nil {
			return nil, err
		}
	}
	return use, nil
}

// rest waits until all tiers have used next to no CPU for a second, and notes their CPU until then.
func (r *tiersRunner) rest(use []tierUse) error {
	const window, noise = time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(r.patience()); time.Now().Before(deadline); {
		for i, t := range r.tiers {
			var err error
			if use[i].cpu, err = process.CPUOf(t.cmd.Process.Pid); err != nil {
				return err
			}
		}
		time.Sleep(window)
		resting := true
		for i, t := range r.tiers {
			now, err := process.CPUOf(t.cmd.Process.Pid)
			if err != nil {
				return err
			}
			resting = resting && now-use[i].cpu <= noise
		}
		if resting {
			return nil
		}
	}
	return errBusy
}

// assemble makes figures from the usage of the tiers.
func (r *tiersRunner) assemble(before, after []tierUse) []figures {
	run := make([]figures, len(after))
	for i, a := range after {
		run[i] = figures{
			CPU: a.cpu - before[i].cpu, RSS: a.inUse, PeakRSS: a.peak,
			Bytes: a.sent.Bytes - before[i].sent.Bytes, Messages: a.sent.Received - before[i].sent.Received,
		}
	}
	return run
}

// arrive notes when the streams had the change.
func (f *figures) arrive(a role.Arrivals, start time.Time) {
	f.P50, f.P99, f.Last = a.Since(start, 0.5), a.Since(start, 0.99), a.Since(start, 1)
}

// writeObjects writes so many ServiceEntries into a few files, which are read faster than many, and one of them into a file of
// its own, which is the one that changes. It returns the folder.
func writeObjects(dir string, objects int) (rules string, err error) {
	const perFile = 10_000
	rules = filepath.Join(dir, "rules")
	if err := os.Mkdir(rules, 0o755); err != nil {
		return "", err
	}
	for first := 1; first < objects; first += perFile {
		var b bytes.Buffer
		for i := first; i < min(first+perFile, objects); i++ {
			b.WriteString("---\n")
			if err := writeEntry(&b, i, 0); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(filepath.Join(rules, fmt.Sprintf("from-%06d.yaml", first)), b.Bytes(), 0o644); err != nil {
			return "", err
		}
	}
	return rules, writeChanging(dir, 0)
}

// writeChanging writes the object that changes, in one step as editors and deployments do.
func writeChanging(dir string, change int) error {
	var b bytes.Buffer
	if err := writeEntry(&b, 0, change); err != nil {
		return err
	}
	temporary := filepath.Join(dir, "changing.new")
	if err := os.WriteFile(temporary, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, "rules", "changing.yaml"))
}

func writeEntry(w io.Writer, i, change int) error {
	return serviceEntry.Execute(w, struct {
		Index  int
		Marker string
	}{i, engine.Marker(change)})
}
