#include "program/disk_cache.h"

#include "base/error.h"
#include "program/cache_listing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace torch_xla {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "torch_xla_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    set_warning_handler([](const std::string&) {});
  }
  void TearDown() override {
    fs::permissions(root_, fs::perms::owner_all);
    fs::remove_all(root_);
    unsetenv("TORCH_XLA_CACHE_SIZE_MB");
    set_warning_handler(nullptr);
  }
  std::string directory() const { return root_ / "a" / "cache"; }
  fs::path entry(const std::string& key) const {
    return fs::path(directory()) / (key + ".program");
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(directory()), fs::directory_iterator()));
  }
  static mode_t mode(const fs::path& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 0777;
  }
  // In a child, since warnings and limits last for the process: true if `action` returned true.
  template <typename Action>
  static bool in_child(Action action) {
    pid_t child = fork();
    if (child == 0) {
      _exit(action() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  fs::path root_;
};

// Warnings of this process so far.
int& warnings() {
  static int count = 0;
  return count;
}
void count_warning(const std::string&) { ++warnings(); }

TEST_F(DiskCacheTest, KeepsEntriesForThisUserOnly) {
  DiskCache cache(directory(), false);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  std::string bytes("with \0 inside", 13);
  cache.store("key", "", bytes);
  EXPECT_EQ(DiskCache(directory(), true).load("key"), bytes);
  cache.store("key", "", "new");
  EXPECT_EQ(cache.load("key"), "new");
  EXPECT_EQ(mode(directory()), 0700u);
  EXPECT_EQ(mode(fs::path(directory()).parent_path()), 0700u);
  EXPECT_EQ(mode(entry("key")), 0600u);
  EXPECT_EQ(files(), 1u);
  cache.remove("key");
  EXPECT_EQ(cache.load("key"), std::nullopt);
}

TEST_F(DiskCacheTest, IgnoresDamagedEntries) {
  DiskCache cache(directory(), false);
  std::string bytes(1000, 'x');
  cache.store("key", "", bytes);
  for (std::streamoff at : {0, 9, 20, 32, 700, 1031}) {
    cache.store("key", "", bytes);
    std::fstream file(entry("key"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).put('\x7f');
    file.close();
    EXPECT_EQ(cache.load("key"), std::nullopt) << at;
  }
  for (uintmax_t size : {0, 5, 32, 500}) {
    cache.store("key", "", bytes);
    fs::resize_file(entry("key"), size);
    EXPECT_EQ(cache.load("key"), std::nullopt) << size;
  }
  cache.store("key", "", bytes);
  EXPECT_EQ(cache.load("key"), bytes);
}

TEST_F(DiskCacheTest, IgnoresAnEntryUnderAnotherName) {
  DiskCache cache(directory(), false);
  cache.store("key", "", "bytes");
  fs::rename(entry("key"), entry("other"));
  EXPECT_EQ(cache.load("other"), std::nullopt);
}

TEST_F(DiskCacheTest, RefusesWhatOthersMayWrite) {
  DiskCache cache(directory(), false);
  cache.store("key", "", "bytes");
  fs::permissions(entry("key"), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  fs::permissions(entry("key"), fs::perms::others_write, fs::perm_options::remove);
  EXPECT_EQ(cache.load("key"), "bytes");
  fs::permissions(directory(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(DiskCache(directory(), false).enabled());
}

TEST_F(DiskCacheTest, RefusesWhatAnotherUserOwns) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give files away";
  }
  DiskCache cache(directory(), false);
  cache.store("key", "", "bytes");
  ASSERT_EQ(chown(entry("key").c_str(), 12345, 12345), 0);
  EXPECT_EQ(cache.load("key"), std::nullopt);
  ASSERT_EQ(chown(directory().c_str(), 12345, 12345), 0);
  EXPECT_FALSE(DiskCache(directory(), false).enabled());
}

TEST_F(DiskCacheTest, RefusesLinks) {
  DiskCache cache(directory(), false);
  cache.store("key", "", "bytes");
  fs::rename(entry("key"), root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", entry("key"));
  EXPECT_EQ(cache.load("key"), std::nullopt);
}

TEST_F(DiskCacheTest, DeletesWhatWasUsedLongestAgoAndNothingElse) {
  setenv("TORCH_XLA_CACHE_SIZE_MB", "1", 1);
  DiskCache cache(directory(), false);
  std::ofstream(fs::path(directory()) / "thesis.txt") << std::string(1 << 20, 't');
  std::string bytes(300 << 10, 'x');
  auto age = [&](const std::string& key, int seconds) {
    struct timespec times[2] = {};
    times[0].tv_sec = times[1].tv_sec = time(nullptr) - seconds;
    utimensat(AT_FDCWD, entry(key).c_str(), times, 0);
  };
  cache.store("one", "", bytes);
  cache.store("two", "", bytes);
  cache.store("three", "", bytes);
  age("one", 30);
  age("two", 20);
  age("three", 10);
  EXPECT_TRUE(cache.load("one"));  // used just now
  cache.store("four", "", bytes);
  EXPECT_FALSE(fs::exists(entry("two")));
  EXPECT_TRUE(fs::exists(entry("one")));
  EXPECT_TRUE(fs::exists(entry("four")));
  EXPECT_TRUE(fs::exists(fs::path(directory()) / "thesis.txt"));
}

TEST_F(DiskCacheTest, AProgramAboveTheLimitPushesNoneOut) {
  setenv("TORCH_XLA_CACHE_SIZE_MB", "1", 1);
  DiskCache cache(directory(), false);
  cache.store("small", "", "bytes");
  const std::string large(2 << 20, 'x');
  const std::string path = directory();
  EXPECT_TRUE(in_child([&] {
    static std::string warning;
    set_warning_handler([](const std::string& message) { warning += message + "\n"; });
    DiskCache mine(path, false);
    mine.store("large", "", large);
    mine.store("larger", "", large + large);
    return warning.find(
               "a program of 2 MB is not kept in the program cache, which "
               "TORCH_XLA_CACHE_SIZE_MB limits to 1;") == 0 &&
           std::count(warning.begin(), warning.end(), '\n') == 1;
  }));
  EXPECT_FALSE(fs::exists(entry("large")));
  EXPECT_TRUE(fs::exists(entry("small")));
}

TEST_F(DiskCacheTest, WarnsOnceWhenTheDiskIsFull) {
  std::string path = directory();
  EXPECT_TRUE(in_child([&] {
    set_warning_handler(&count_warning);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    DiskCache cache(path, false);
    cache.store("small", "", "fits");
    cache.store("key", "", std::string(1000, 'x'));
    cache.store("other", "", std::string(1000, 'x'));
    return cache.load("small") == "fits" && !cache.load("key") && warnings() == 1;
  }));
  EXPECT_EQ(files(), 1u);  // no half-written file is left
}

TEST_F(DiskCacheTest, WarnsOnceWhenTheDirectoryCannotBeMade) {
  std::ofstream(root_ / "a") << "a file where a directory should be";
  std::string path = directory();
  EXPECT_TRUE(in_child([&] {
    set_warning_handler(&count_warning);
    DiskCache first(path, false), second(path, false);
    first.store("key", "", "bytes");
    return !first.enabled() && !first.load("key") && !second.enabled() && warnings() == 1;
  }));
}

TEST_F(DiskCacheTest, ListsWhatIsThereAndCallsItByItsName) {
  EXPECT_TRUE(list_cache(directory(), true).empty());  // does not exist
  DiskCache cache(directory(), false);
  auto problem_of = [&](const std::string& key, bool verify = true) -> std::string {
    for (const ListedEntry& found : list_cache(directory(), verify)) {
      if (found.file.starts_with(key + ".")) {
        return found.problem;
      }
    }
    return "not listed";
  };
  const std::string bytes(1000, 'x');
  for (const char* key : {"good", "flipped", "short", "shared", "moved"}) {
    cache.store(key, std::string("step ") + key, bytes);
  }
  std::fstream(entry("flipped"), std::ios::in | std::ios::out | std::ios::binary).seekp(500).put(1);
  fs::resize_file(entry("short"), 700);
  fs::permissions(entry("shared"), fs::perms::group_write, fs::perm_options::add);
  fs::rename(entry("moved"), entry("renamed"));
  fs::create_directory(entry("folder"));
  std::ofstream(entry("folder") / "mine") << "kept";
  fs::create_symlink(entry("good"), entry("link"));
  ASSERT_EQ(mkfifo(entry("pipe").c_str(), 0600), 0);
  std::ofstream(fs::path(directory()) / "half.program.123456.program-part") << "half";
  std::ofstream(fs::path(directory()) / "thesis.txt") << "mine";

  EXPECT_EQ(list_cache(directory(), false).size(), 9u);
  EXPECT_EQ(problem_of("good"), "");
  EXPECT_EQ(problem_of("flipped"), "it is damaged");
  EXPECT_EQ(problem_of("flipped", false), "");  // not read so far
  EXPECT_EQ(problem_of("short", false), "it is damaged");
  EXPECT_EQ(problem_of("renamed"), "it is damaged");
  EXPECT_EQ(problem_of("shared"), "other users may write to it");
  EXPECT_EQ(problem_of("folder"), "it is a folder");
  EXPECT_EQ(problem_of("link"), "it is a link");
  EXPECT_EQ(problem_of("pipe"), "it is a pipe");
  EXPECT_EQ(problem_of("half").find("it is unfinished"), 0u);
  for (const char* key : {"folder", "link", "pipe", "shared"}) {
    EXPECT_EQ(cache.load(key), std::nullopt) << key;
  }

  std::vector<ListedEntry> left = clear_cache(directory());
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].problem, "it is a folder");
  EXPECT_EQ(files(), 2u);  // the folder, and what never was an entry
  EXPECT_TRUE(fs::exists(entry("folder") / "mine"));
}

TEST_F(DiskCacheTest, ListsNamesUsedLastFirst) {
  DiskCache cache(directory(), false);
  cache.store("a", "step at train.py:42", "bytes");
  cache.store("b", "", "more bytes");
  struct timespec times[2] = {{1, 0}, {1, 0}};
  utimensat(AT_FDCWD, entry("b").c_str(), times, 0);
  std::vector<ListedEntry> entries = list_cache(directory(), true);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "step at train.py:42");
  EXPECT_EQ(entries[0].file, "a.program");
  EXPECT_EQ(entries[1].used, 1);
  EXPECT_EQ(entries[1].size, static_cast<int64_t>(fs::file_size(entry("b"))));
  fs::permissions(directory(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_THROW(list_cache(directory(), true), Error);
  EXPECT_THROW(clear_cache(directory()), Error);
  EXPECT_THROW(list_cache(entry("a"), true), Error);
}

TEST_F(DiskCacheTest, LeavesAFolderThatIsNamedLikeAnEntry) {
  DiskCache cache(directory(), false);
  fs::create_directory(entry("key"));
  EXPECT_EQ(cache.load("key"), std::nullopt);
  cache.store("key", "", "bytes");
  EXPECT_EQ(cache.load("key"), std::nullopt);
  EXPECT_TRUE(fs::is_directory(entry("key")));
}

TEST_F(DiskCacheTest, WritesNothingWhenReadOnly) {
  DiskCache(directory(), false).store("key", "", "bytes");
  DiskCache cache(directory(), true);
  cache.store("other", "", "bytes");
  cache.remove("key");
  EXPECT_EQ(cache.load("key"), "bytes");
  EXPECT_EQ(cache.load("other"), std::nullopt);
}

TEST_F(DiskCacheTest, ProcessesAndThreadsShareIt) {
  DiskCache cache(directory(), false);
  auto content = [](int i) { return std::string(20000, static_cast<char>('a' + i)); };
  auto work = [&](int writer) {
    for (int i = 0; i < 50; ++i) {
      cache.store("key", "", content(writer));
      auto bytes = cache.load("key");
      if (!bytes || *bytes != content(bytes->at(0) - 'a')) {
        return false;  // each read sees one whole entry
      }
    }
    return true;
  };
  pid_t child = fork();
  if (child == 0) {
    _exit(work(0) ? 0 : 1);
  }
  bool right[2] = {};
  std::thread thread([&] { right[0] = work(1); });
  right[1] = work(2);
  thread.join();
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(right[0] && right[1]);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace torch_xla
