// Bench compares the cost of xDS servers: tributary's engine, go-control-plane's, and the least that gRPC allows. See README.md.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/bench/engine"
	"tributary/bench/role"
)

func main() {
	if played, err := role.Serve(); played {
		exit(err)
	}
	exit(run(os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run takes the flags of the program and writes tables to out.
func run(args []string, out io.Writer) error {
	m := fullMatrix()
	s := settings{Repeat: 5, IdleTime: 2 * time.Second}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "one change among 10,000 resources, to 100 delta streams and to 50 SotW streams, medians of 3")
	names := listFlag(flags, "server", &m.Servers, engine.Names(), "servers to compare")
	kinds := listFlag(flags, "mode", &m.Modes, modes, "how clients subscribe")
	steps := listFlag(flags, "scenario", &m.Scenarios, scenarios, "what to measure")
	resources := numbersFlag(flags, "resources", &m.Resources, "how many resources of 600 bytes")
	streams := numbersFlag(flags, "streams", &m.Streams, "how many streams")
	repeat := flags.Int("repeat", s.Repeat, "how often each step is measured")
	flags.IntVar(&s.Connections, "connections", 0, "connections that the streams share; 0 gives each its own, as real clients have")
	flags.IntVar(&s.StormRate, "storm-rate", 10_000, "changes a second in a storm")
	flags.DurationVar(&s.StormTime, "storm-time", 10*time.Second, "how long a storm lasts")
	flags.DurationVar(&s.Timeout, "timeout", 2*time.Minute, "bounds each step")
	budget := flags.Duration("budget", 3*time.Hour, "bounds the run: later cases are left out")
	flags.StringVar(&s.CPUProfile, "cpuprofile", "", "write CPU profiles of the server to this file, with the scenario appended; for one case")
	flags.StringVar(&s.HeapProfile, "memprofile", "", "write a heap profile of the server to this file when a case ends; for one case")
	dir := flags.String("out", "", "directory for the table in Markdown and the plots in SVG")
	listFlag(flags, "columns", &s.Columns, columns, "columns of the table")
	page := flags.String("page", "", "run the commands that stand in this Markdown page, and write their tables into it")
	only := flags.String("page-only", "", "of -page, run the commands that contain this text")
	check := flags.Bool("check", false, "check the flags, and do not measure")
	var files filesFlags
	files.register(flags)
	var envoys envoysFlags
	envoys.register(flags)
	var tiers tiersFlags
	tiers.register(flags)
	var attacks attacksFlags
	attacks.register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	s.Repeat = max(*repeat, 1)
	if *check {
		return nil
	}
	if *page != "" {
		return writePage(*page, *only, func(args []string, out *bytes.Buffer) error { return run(args, out) })
	}
	if files.on {
		return runFiles(files, s, out)
	}
	if envoys.on {
		return runEnvoys(files, envoys, s, out)
	}
	if tiers.on {
		return runTiers(files.tributary, tiers, s, out)
	}
	if attacks.on {
		return runAttacks(files, attacks, s, out)
	}
	cases := m.cases()
	if *names || *kinds || *steps || *resources || *streams {
		// Bounds apply to flags that are not set.
		m.Bounded = !(*resources && *streams)
		cases = m.cases()
	} else if *quick {
		s.Repeat = 3
		cases = quickCases()
	}
	return runCases(cases, s, *dir, time.Now().Add(*budget), out)
}

// quickCases are the two comparisons that say the most.
func quickCases() []benchCase {
	m := matrix{
		Servers: engine.Compared(), Modes: []string{modeDelta}, Resources: []int{10_000}, Streams: []int{100},
		Scenarios: []string{oneChange},
	}
	cases := m.cases()
	m.Modes, m.Streams = []string{modeSotW}, []int{50}
	return append(cases, m.cases()...)
}

// runCases runs the cases one after the other and saves the results after each, so that an aborted run keeps its
// results.
func runCases(cases []benchCase, s settings, dir string, deadline time.Time, out io.Writer) error {
	o := outcome{columns: s.Columns}
	p := newProgress(os.Stderr, len(cases))
	for i, c := range cases {
		if time.Now().After(deadline) {
			o.results = append(o.results, result{benchCase: c, Scenario: "case", Err: errors.New("out of time")})
			continue
		}
		p.begin(i, c)
		results := runCase(c, s, p.step)
		o.results = append(o.results, results...)
		p.finish(results)
		if dir != "" {
			if err := o.save(dir); err != nil {
				return err
			}
		}
	}
	p.end()
	if err := errors.Join(o.writeTable(out), o.writeErrors(out)); err != nil {
		return err
	}
	if o.failed() {
		return errors.New("not everything could be measured")
	}
	return nil
}

// listFlag defines a flag of names separated by commas. The returned function reports whether the flag was given.
func listFlag(flags *flag.FlagSet, name string, into *[]string, allowed []string, usage string) *bool {
	given := new(bool)
	flags.Func(name, fmt.Sprintf("%s: any of %s (default all)", usage, strings.Join(allowed, ",")), func(s string) error {
		*given = true
		*into = strings.Split(s, ",")
		for _, v := range *into {
			if !slices.Contains(allowed, v) {
				return fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
			}
		}
		return nil
	})
	return given
}

// numbersFlag is listFlag for counts.
func numbersFlag(flags *flag.FlagSet, name string, into *[]int, usage string) *bool {
	given := new(bool)
	flags.Func(name, fmt.Sprintf("%s, separated by commas (default %s)", usage, strings.Trim(fmt.Sprint(*into), "[]")), func(s string) error {
		*given = true
		*into = nil
		for v := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a count", v)
			}
			*into = append(*into, n)
		}
		return nil
	})
	return given
}
