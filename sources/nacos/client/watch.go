package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/intake"
	"tributary/internal/worker"
)

// Client reads a Nacos.
type Client struct {
	address Address
	config  TLS
	login   *login

	maxAnswer int // in bytes

	conn atomic.Pointer[conn] // while there is one
}

// New returns a client of the Nacos at an address.
func New(a Address, config TLS) *Client {
	login := &login{web: newWeb(a, config), pause: loginPause}
	return &Client{address: a, config: config, login: login, maxAnswer: maxAnswer}
}

// Listener receives the state of a Nacos, not events: each call has the whole of a part. An error instead of content
// says that the part is unreadable; its last content stays. Its methods do not block, own their arguments, and are
// called one at a time except Connection.
type Listener interface {
	// Connection is called at the start and for each change of the connection, with nil or its error.
	Connection(err error)
	// Services are the names of the services of a group. A service that is missing is gone: it is not listed and has no
	// instance, or it is not listed and the connection is new.
	Services(group string, names []string, err error)
	// Instances are the instances of a service. Disabled ones may be missing.
	Instances(group, service string, instances []Instance, warnings []string, err error)
	// Healed is called when a slow read found a change without a push.
	Healed(group, service string)
}

// Watched selects the services to follow.
type Watched struct {
	Groups  []string
	Selects func(group, service string) bool
	// receives, after each list, the names that are not selected; may be nil
	Skipped  func(group string, names []string)
	Interval time.Duration // between lists of the names of services
	Resync   time.Duration // mean time between slow reads of each service
}

// The pauses between attempts.
const (
	firstTry = 250 * time.Millisecond
	lastTry  = 5 * time.Second
)

// maxReads is the limit of concurrent reads of services.
const maxReads = 16

// Watch passes the selected services and their changes to a listener until ctx ends. It returns the error of ctx.
func (c *Client) Watch(ctx context.Context, watched Watched, listener Listener) error {
	large := map[key]bool{}
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstTry), backoff.WithMaxInterval(lastTry),
		backoff.WithMaxElapsedTime(0))
	for next := 0; ; next++ {
		server := c.address.Servers[next%len(c.address.Servers)]
		err := c.once(ctx, server, watched, listener, large, retry.Reset)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		listener.Connection(err)
		wait := retry.NextBackOff()
		if errors.Is(err, errPassing) { // although the client connects
			wait = max(wait, c.login.pause)
		}
		if worker.Wait(ctx, nil, wait) != nil {
			return ctx.Err()
		}
	}
}

// once follows all services by one connection until the connection ends.
func (c *Client) once(ctx context.Context, server string, watched Watched, listener Listener, large map[key]bool,
	connected func(),
) error {
	session := &session{
		watched: watched, to: listener, services: map[key]*service{}, changed: map[key]bool{}, names: map[string]bool{},
		failed: map[string]error{},
		large:  large, wakeup: make(chan struct{}, 1),
	}
	conn, err := c.open(ctx, server, session.pushed)
	if err != nil {
		return err
	}
	session.conn = conn
	defer func() {
		conn.close()
		for _, state := range session.services {
			_ = intake.Keep(ctx, state.info.size(), 0)
		}
	}()
	connected()
	listener.Connection(nil)
	c.conn.Store(conn)
	defer c.conn.Store(nil)
	conn.workers.Go(func() { session.report(conn.ctx) })
	conn.workers.Go(func() { conn.workers.Fail(session.follow(conn.ctx)) })
	return conn.workers.Wait()
}

// Config returns a configuration text, or ErrAbsent. It is called while Watch runs.
func (c *Client) Config(ctx context.Context, dataID, group string) (string, error) {
	conn, err := c.current()
	if err != nil {
		return "", err
	}
	return conn.config(ctx, dataID, group)
}

// current returns the connection, if there is one.
func (c *Client) current() (*conn, error) {
	if conn := c.conn.Load(); conn != nil {
		return conn, nil
	}
	return nil, errors.New("there is no connection")
}

// session is the state of one connection.
type session struct {
	// read-only
	conn    *conn
	watched Watched
	to      Listener
	wakeup  chan struct{} // there are unreported changes

	mu       sync.Mutex
	services map[key]*service
	changed  map[key]bool     // services with unreported changes
	names    map[string]bool  // groups with unreported names
	failed   map[string]error // groups with an unreported error
	// large has the services with a last answer that was too large to read. They are not subscribed, since a push of that
	// size would end the connection. The map outlives connections
	large map[key]bool
}

type key struct{ group, service string }

// service is the state of a service at this connection.
type service struct {
	info   serviceInfo
	err    error
	read   bool
	pushes int       // received pushes
	missed int       // failed reads in a row
	due    time.Time // time of the next read
	listed bool
}

// pushed notes a push of a service. A push that seems older than the last state may be late, or the server's clock was
// set back: then the service is read.
func (s *session) pushed(info serviceInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group, name, ok := strings.Cut(info.Name, "@@"); ok {
		info.Group, info.Name = group, name
	}
	key := key{info.Group, info.Name}
	state := s.services[key]
	if state == nil {
		return
	}
	state.pushes++
	if state.read && info.Time < state.info.Time {
		state.due = time.Time{}
		return
	}
	if s.take(key, state, info); !state.listed {
		state.due = time.Time{} // it may be gone
	}
}

// answered notes the answer to a read that began after a number of pushes. The answer counts whatever its time is,
// unless a push came meanwhile: then the service is read again. It reports a change.
func (s *session) answered(key key, state *service, info serviceInfo, pushes int) (news bool) {
	if state.pushes != pushes && info.Time < state.info.Time {
		state.due = time.Time{}
		return false
	}
	return s.take(key, state, info)
}

// take notes the instances of a service, and reports a change. The caller holds mu.
func (s *session) take(key key, state *service, info serviceInfo) (news bool) {
	if err := intake.Keep(s.conn.ctx, state.info.size(), info.size()); err != nil { // its last state stays
		state.err = fmt.Errorf("service %s of group %s: its %d bytes: %w", key.service, key.group, info.size(), err)
		s.changed[key] = true
		s.notify()
		return false
	}
	same := slices.EqualFunc(state.info.Hosts, info.Hosts, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	news = !state.read || state.err != nil || !same
	state.info, state.read, state.err, state.missed = info, true, nil, 0
	if news {
		s.changed[key] = true
		s.notify()
	}
	return news
}

func (s *session) notify() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// report reports changes until ctx ends.
func (s *session) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wakeup:
		}
		s.mu.Lock()
		listed, failed := map[string][]string{}, maps.Clone(s.failed)
		for group := range s.names {
			listed[group] = []string{}
		}
		for k := range s.services {
			if len(listed) > 0 && s.names[k.group] {
				listed[k.group] = append(listed[k.group], k.service)
			}
		}
		clear(s.names)
		clear(s.failed)
		changed := make(map[key]service, len(s.changed))
		for k := range s.changed {
			if state := s.services[k]; state != nil {
				changed[k] = *state
			}
		}
		clear(s.changed)
		s.mu.Unlock()
		for group, names := range listed {
			slices.Sort(names)
			s.to.Services(group, names, nil)
		}
		for group, err := range failed {
			s.to.Services(group, nil, err)
		}
		for k, state := range changed {
			instances, warnings := state.info.instances()
			s.to.Instances(k.group, k.service, instances, warnings, state.err)
		}
	}
}

// follow lists the names of services and reads new or due services until the connection fails.
func (s *session) follow(ctx context.Context) error {
	reported := map[string]bool{} // groups with reported names since the last error
	for {
		for _, group := range s.watched.Groups {
			first := !reported[group]
			names, err := s.conn.names(ctx, group, first)
			if broken(err) {
				return err
			}
			var passed []string
			names = slices.DeleteFunc(names, func(name string) bool {
				selected := s.watched.Selects(group, name)
				if !selected {
					passed = append(passed, name)
				}
				return !selected
			})
			if s.watched.Skipped != nil && err == nil {
				s.watched.Skipped(group, passed)
			}
			if reported[group] = err == nil; err != nil {
				s.fail(group, err)
				continue
			}
			s.listed(group, names, first)
		}
		if err := s.read(ctx); err != nil {
			return err
		}
		if worker.Wait(ctx, nil, s.watched.Interval) != nil {
			return context.Cause(ctx)
		}
	}
}

func broken(err error) bool {
	var c *connError
	return errors.As(err, &c) || errors.Is(err, errUnregistered) || errors.Is(err, context.Canceled)
}

// fail reports that the names of a group are unreadable.
func (s *session) fail(group string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[group] = err
	s.notify()
}

// listed notes the listed services of a group. A service that is no longer listed is read once more: only its own
// answer proves that it is empty. news reports the names even if they did not change.
func (s *session) listed(group string, names []string, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
		key := key{group, name}
		if s.services[key] == nil {
			s.services[key], news = &service{}, true
		}
		s.services[key].listed = true
	}
	for k, state := range s.services {
		if k.group == group && state.listed && !listed[k.service] {
			state.listed, state.due = false, time.Time{}
		}
	}
	delete(s.failed, group)
	if news {
		s.names[group] = true
		s.notify()
	}
}

// read reads the due services.
func (s *session) read(ctx context.Context) error {
	now := time.Now()
	var due []key
	s.mu.Lock()
	for k, state := range s.services {
		if !state.due.After(now) {
			due = append(due, k)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(due, func(a, b key) int { return strings.Compare(a.group+"\x00"+a.service, b.group+"\x00"+b.service) })
	readers, ctx := worker.New(ctx)
	defer readers.Stop()
	turns := make(chan struct{}, maxReads)
	for _, key := range due {
		select {
		case <-ctx.Done():
			return errors.Join(readers.Wait(), ctx.Err())
		case turns <- struct{}{}:
		}
		readers.Go(func() {
			defer func() { <-turns }()
			if err := s.readService(ctx, key); err != nil {
				readers.Fail(err)
			}
		})
	}
	return readers.Wait()
}

// readService reads a service. Its error is of the connection.
func (s *session) readService(ctx context.Context, key key) error {
	s.mu.Lock()
	state := s.services[key]
	pushes, large := state.pushes, s.large[key]
	s.mu.Unlock()
	info, err := s.conn.subscribe(ctx, key.group, key.service, !large)
	if errors.Is(err, errTooLarge) && !large {
		if _, failure := s.conn.subscribe(ctx, key.group, key.service, false); broken(failure) {
			return failure
		}
	}
	if broken(err) {
		return err
	}
	s.mu.Lock()
	reported := state.read
	isGone := false
	if err != nil {
		state.missed++
		state.due = time.Now().Add(min(s.watched.Resync, lastTry<<min(state.missed, 4)))
		if state.err == nil || state.err.Error() != err.Error() {
			state.err = err
			s.changed[key] = true
			s.notify()
		}
		if errors.Is(err, errTooLarge) {
			s.large[key] = true
		}
	} else {
		state.due = time.Now().Add(s.watched.Resync/2 + rand.N(s.watched.Resync)) //nolint:gosec // no secret
		if large {                                                                // the service can be subscribed now
			delete(s.large, key)
			state.due = time.Time{}
		}
		// Pushes come by another stream, perhaps later.
		healed := s.answered(key, state, info, pushes) && reported && state.listed
		isGone = !state.listed && len(state.info.Hosts) == 0
		if healed {
			defer s.to.Healed(key.group, key.service)
		}
	}
	s.mu.Unlock()
	if !isGone {
		return nil
	}
	if _, err := s.conn.subscribe(ctx, key.group, key.service, false); broken(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state.listed || len(state.info.Hosts) > 0:
	case s.changed[key]:
		state.due = time.Time{} // the change is reported first
	default:
		delete(s.services, key)
		s.names[key.group] = true
		s.notify()
	}
	return nil
}

// ungrouped returns the name of a service without the group, which some versions prepend.
func ungrouped(name string) string {
	if _, bare, ok := strings.Cut(name, "@@"); ok {
		return bare
	}
	return name
}

// Place returns the place of a service, for people.
func (a Address) Place(group, service string) string {
	return fmt.Sprintf("nacos %s %s %s", a.NamespaceName(), group, service)
}
