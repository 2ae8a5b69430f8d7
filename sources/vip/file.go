package vip

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"tributary/internal/disk"
)

const header = "# Virtual addresses that tributary gave to hosts, one a line. Delete a line to have it chosen anew.\n"

// Load fills the table from a file that Save wrote; a missing file is no error. It ignores addresses
// outside of the range: the range may have changed.
func (t *Table) Load(path string) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("virtual addresses: %w", err)
	}
	return t.parse(path, content)
}

// parse parses lines of an address and a host, as in /etc/hosts.
func (t *Table) parse(path string, content []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		address, err := netip.ParseAddr(fields[0])
		if err != nil || len(fields) != 2 {
			return fmt.Errorf("%s:%d: virtual addresses: want an address and a host, as in `241.0.0.1 redis.service.consul`",
				path, n)
		}
		if !t.prefix.Contains(address) {
			continue
		}
		if former, taken := t.byAddr[address]; taken && former != fields[1] {
			return fmt.Errorf("%s:%d: virtual addresses: %s is that of %s already", path, n, address, former)
		}
		if former, exists := t.byHost[fields[1]]; exists && former != address {
			return fmt.Errorf("%s:%d: virtual addresses: %s has %s already", path, n, fields[1], former)
		}
		t.put(fields[1], address)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: virtual addresses: %w", path, err)
	}
	return nil
}

// Save writes the table if it has changed since the last time. It replaces the file in one step.
func (t *Table) Save(path string) error {
	t.mu.Lock()
	hosts, changed := maps.Clone(t.byHost), t.changed
	t.changed = false
	t.mu.Unlock()
	if !changed {
		return nil
	}
	_, err := disk.Replace(path, true, func(writer io.Writer) error {
		_, err := io.WriteString(writer, header)
		for _, host := range slices.Sorted(maps.Keys(hosts)) {
			if err == nil {
				_, err = fmt.Fprintf(writer, "%s %s\n", hosts[host], host)
			}
		}
		return err
	})
	if err != nil {
		t.mu.Lock()
		t.changed = true
		t.mu.Unlock()
		return fmt.Errorf("virtual addresses: %w", err)
	}
	return nil
}

// The intervals of writes: one write has several changes, and a failing disk is tried again.
const (
	quiet = time.Second
	retry = time.Minute
)

// Run saves the table to a file after each change until ctx ends, and then once more. It calls report for each
// failure.
func (t *Table) Run(ctx context.Context, path string, report func(error)) {
	wait := func(interval time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-t.bell:
			wait(quiet)
			for err := t.Save(path); err != nil && ctx.Err() == nil; err = t.Save(path) {
				report(err)
				wait(retry)
			}
		}
	}
	if err := t.Save(path); err != nil {
		report(err)
	}
}
