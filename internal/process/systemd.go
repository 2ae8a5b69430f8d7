package process

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// every is the interval of status updates, if the status changed.
const every = 2 * time.Second

// Manager is the service manager that started this process. The methods of the zero value, without a manager, have no
// effect. They are safe for concurrent use.
type Manager struct {
	log       *slog.Logger
	isPresent bool
	watchdog  time.Duration // its timeout; 0 without one
}

// ManagerFromEnvironment returns the manager that $NOTIFY_SOCKET names.
func ManagerFromEnvironment(log *slog.Logger) *Manager {
	manager := &Manager{log: log, isPresent: os.Getenv("NOTIFY_SOCKET") != ""}
	var err error
	if manager.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("the watchdog of the service manager is not fed", "err", err)
	}
	return manager
}

// Ready says that the service works, also after Reloading.
func (m *Manager) Ready() { m.tell(daemon.SdNotifyReady) }

// Reloading says that the service reads its configuration, until Ready.
func (m *Manager) Reloading() {
	m.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping says that the service ends.
func (m *Manager) Stopping() { m.tell(daemon.SdNotifyStopping) }

func (m *Manager) tell(state string) {
	if !m.isPresent {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("the state cannot be sent to the service manager", "err", err)
	}
}

// Run sends changes of the status in words, and feeds the watchdog while each of alive returns in time, until ctx ends.
// The log names the part that hangs.
func (m *Manager) Run(ctx context.Context, status func() string, alive map[string]func(context.Context) error) error {
	if !m.isPresent {
		return nil
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { m.describe(ctx, status) })
	if m.watchdog > 0 {
		tasks.Go(func() { m.feed(ctx, alive) })
	}
	tasks.Wait()
	return nil
}

func (m *Manager) describe(ctx context.Context, status func() string) {
	for message := ""; ; {
		if now := strings.Join(strings.Fields(status()), " "); now != message {
			message = now
			m.tell("STATUS=" + now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// feed feeds the watchdog twice as often as required.
func (m *Manager) feed(ctx context.Context, alive map[string]func(context.Context) error) {
	for ctx.Err() == nil {
		next := time.After(m.watchdog / 2)
		if hanging := ask(ctx, m.watchdog/2, alive); len(hanging) == 0 {
			m.tell(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			m.log.Error("the watchdog is not fed, since parts of the program hang", "parts", hanging, "within", m.watchdog/2)
		}
		select {
		case <-ctx.Done():
		case <-next:
		}
	}
}

// ask returns the parts that did not return in time.
func ask(ctx context.Context, timeout time.Duration, alive map[string]func(context.Context) error) (hanging []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		part string
		err  error
	}
	answers := make(chan answer, len(alive))
	for part, check := range alive {
		go func() { answers <- answer{part, check(ctx)} }() // a part that ignores ctx is left behind
	}
	owed := maps.Clone(alive)
	for len(owed) > 0 {
		select {
		case received := <-answers:
			if received.err != nil {
				return slices.Sorted(maps.Keys(owed))
			}
			delete(owed, received.part)
		case <-ctx.Done():
			return slices.Sorted(maps.Keys(owed))
		}
	}
	return nil
}

// ManagerSockets returns the sockets of the manager by their names in socket units (FileDescriptorName=).
func ManagerSockets() (map[string]net.Listener, error) {
	named, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("sockets of the service manager: %w", err)
	}
	sockets := make(map[string]net.Listener, len(named))
	for name, list := range named {
		if len(list) != 1 {
			return nil, fmt.Errorf("sockets of the service manager: %d are called %q", len(list), name)
		}
		sockets[name] = list[0]
	}
	return sockets, nil
}
